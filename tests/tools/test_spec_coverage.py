"""The page that maps requirements to tests says what the tests say."""

from tools.spec_coverage import REQUIREMENTS, Shown, claims, problems, render

TEXT = '''"""A file of tests."""

def test_one() -> None:
    """T5, K2: a thing holds."""

def test_two() -> None:
    """Nothing numbered."""

class Machine:
    """T12: a machine."""
'''


def test_numbers_at_the_start_of_a_docstring_are_claims() -> None:
    found = list(claims("tests/test_a.py", TEXT))

    assert found == [
        ("T5", Shown("tests/test_a.py", "test_one")),
        ("K2", Shown("tests/test_a.py", "test_one")),
        ("T12", Shown("tests/test_a.py", "Machine")),
    ]


def test_an_uncovered_requirement_is_a_problem() -> None:
    shown = {number: [Shown("tests/test_a.py", "test_one")] for number in REQUIREMENTS}
    assert problems(shown, render(shown)) == []

    del shown["T5"]
    assert problems(shown, render(shown)) == ["T5 is shown by no test"]


def test_a_number_that_does_not_exist_is_a_problem() -> None:
    shown = {number: [Shown("tests/test_a.py", "test_one")] for number in REQUIREMENTS}
    shown["T99"] = [Shown("tests/test_a.py", "test_two")]

    assert any("T99" in problem for problem in problems(shown, render(shown)))


def test_an_old_page_is_a_problem() -> None:
    shown = {number: [Shown("tests/test_a.py", "test_one")] for number in REQUIREMENTS}

    assert problems(shown, "old\n") == ["docs/spec-coverage.md is out of date: run `make docs`"]

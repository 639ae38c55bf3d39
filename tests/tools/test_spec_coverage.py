"""The page that maps requirements to tests says what the tests say."""

import pytest

from tools.spec_coverage import (
    NOT_BUILT,
    REQUIREMENTS,
    Shown,
    claims,
    problems,
    render,
    requirements,
)

BUILT = REQUIREMENTS.keys() - NOT_BUILT

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
    shown = {number: [Shown("tests/test_a.py", "test_one")] for number in BUILT}
    assert problems(shown, render(shown)) == []

    del shown["T5"]
    assert problems(shown, render(shown)) == ["T5 is shown by no test"]


def test_a_number_that_does_not_exist_is_a_problem() -> None:
    shown = {number: [Shown("tests/test_a.py", "test_one")] for number in BUILT}
    shown["T99"] = [Shown("tests/test_a.py", "test_two")]

    assert any("T99" in problem for problem in problems(shown, render(shown)))


def test_an_old_page_is_a_problem() -> None:
    shown = {number: [Shown("tests/test_a.py", "test_one")] for number in BUILT}

    assert problems(shown, "old\n") == ["docs/spec-coverage.md is out of date: run `make docs`"]


def test_requirements_are_those_of_the_page_word_for_word() -> None:
    text = "# Requirements\n\n- **T1** Every batch has a type.\n- **K12** What *is* there.\n"

    assert requirements(text) == {"T1": "Every batch has a type.", "K12": "What *is* there."}
    assert {"T1", "V22", "I20", "R16", "D38", "K12"} <= REQUIREMENTS.keys()
    assert REQUIREMENTS.keys() >= NOT_BUILT


def test_what_is_shown_is_no_longer_called_unbuilt() -> None:
    shown = {number: [Shown("tests/test_a.py", "test_one")] for number in BUILT | {"K7"}}

    assert problems(shown, render(shown)) == [
        "K7 is shown by a test: take it out of NOT_BUILT in tools/spec_coverage.py"]


@pytest.mark.parametrize("mark", ["slow", "interop"])
@pytest.mark.parametrize("text", [
    '@pytest.mark.MARK\ndef test_long() -> None:\n    """T5: a thing."""\n',
    'pytestmark = [pytest.mark.MARK]\n\ndef test_long() -> None:\n    """T5: a thing."""\n',
])
def test_marked_tests_are_shown_as_such(text: str, mark: str) -> None:
    (number, test), = claims("tests/test_a.py", text.replace("MARK", mark))

    assert (number, test.mark) == ("T5", mark)
    page = render({"T5": [test]})
    assert f"- [tests/test_a.py](../tests/test_a.py) `test_long` ({mark})" in page
    assert "| [T5](#t5) | 1 | 1 |  |" in page

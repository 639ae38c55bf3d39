"""The repository keeps the rules of tools/tidy.py, and each of those rules can fail."""

import pytest

from tools.tidy import Source, breaches, sources

MODULE = '"""A module."""\n'


def test_the_repository_is_tidy() -> None:
    """Sizes, names and words, over every file; one line per breach."""
    found = [str(breach) for source in sources() for breach in breaches(source)]

    assert not found, "\n" + "\n".join(found)


def test_the_rules_look_at_the_whole_repository() -> None:
    """A rule that sees no file would pass for ever."""
    seen = {source.path for source in sources()}

    assert {"README.md", "Makefile", "src/quipu/model/ids.py", "tests/test_tidy.py"} <= seen
    assert not any("node_modules" in path for path in seen)


LONG_FUNCTION = MODULE + "def f() -> None:\n" + "    pass\n" * 60
FINE = MODULE + "def f(a: int, b: int) -> int:\n    return a + b  # noqa: E501 a reason\n"
CASES = [
    ("no docstring", "src/a.py", "x = 1\n"),
    ("a module too long", "src/a.py", MODULE + "x = 1\n" * 500),
    ("a handler too long", "src/quipu/broker/handlers/k00_a.py", MODULE + "x = 1\n" * 200),
    ("a function too long", "src/a.py", LONG_FUNCTION),
    ("six positional parameters", "src/a.py", MODULE + "def f(a, b, c, d, e, f): ...\n"),
    ("a vague name", "src/a.py", MODULE + "class LogManager: ...\n"),
    ("a wide line", "src/a.py", MODULE + "#" * 101 + "\n"),
    ("unfinished", "docs/a.md", "TO" + "DO: write\n"),
    ("a path of one machine", "docs/a.md", "see /ho" + "me/someone/file\n"),
    ("an address of a registry", "docs/a.md", "from pypi.or" + "g\n"),
    ("an ignore without a code", "src/a.py", MODULE + "x = 1  # type: ig" + "nore\n"),
    ("a skipped test", "tests/a.py", MODULE + "pytest.sk" + "ip()\n"),
    ("a link to nowhere", "docs/a.md", "[a](nowhere.md)\n"),
    ("no newline at the end", "docs/a.md", "text"),
]


@pytest.mark.parametrize(("path", "text"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_a_breach_is_found(path: str, text: str) -> None:
    assert len(breaches(Source(path, text))) == 1


def test_a_tidy_file_has_no_breach() -> None:
    assert breaches(Source("src/a.py", FINE)) == []
    assert breaches(Source("docs/a.md", "[a](glossary.md#words) [b](https://a.b/c)\n")) == []

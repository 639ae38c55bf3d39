"""Rules of this repository that no linter has: sizes, names and words.

    python tools/tidy.py    prints one line per breach, exit code 1 if there is any

A rule takes a `Source` and yields breaches; `RULES` is the list of them.  tests/test_tidy.py runs
them over the repository, and shows for each that it can fail.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[1]

LINE_WIDTH_MAX = 100
MODULE_LINES_MAX = 500
HANDLER_LINES_MAX = 200
FUNCTION_LINES_MAX = 60
POSITIONAL_MAX = 5

FOLDERS = ("src", "tests", "tools", "docs", "bench", "examples", ".ci")
SUFFIXES = {".py", ".pyx", ".md", ".js", ".toml", ".json", ".txt", ""}
SKIPPED = {"node_modules", "__pycache__", "build", "quipu.egg-info",
           ".git"}  # a file, in a worktree

# A last letter in brackets keeps this file within its own rules.
UNFINISHED = re.compile(r"\b(TOD[O]|FIXM[E]|XX[X]|HAC[K])\b")
ABSOLUTE_PATH = re.compile(r"(?<![\w./])/(?:wor[k]|hom[e]|roo[t]|User[s])/\w")
REGISTRY_HOST = re.compile(r"\b(?:pypi\.or[g]|npmjs\.(?:or[g]|co[m])|pythonhoste[d])")
VAGUE_NAME = re.compile(r"(Manager|Helper|Helpers|Util|Utils|Impl|Base)$")
# Interfaces that settings of Kafka name.
KAFKAS_NAMES = {"RemoteLogMetadataManager", "RemoteStorageManager"}
BARE_IGNORE = re.compile(r"#\s*type:\s*ignore(?!\[)|#\s*noqa(?!:\s?[A-Z])")
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)")
SKIP = re.compile(r"pytest\.(?:skip|xfail|importorskip)|mark\.(?:skip|skipif|xfail)\b")
SKIP_ALLOWED = {
    "tests/e2e/kcat_client.py",  # kcat cannot be installed without root
    "tests/harness/earlier.py",  # a shallow clone lacks the earlier version
    "tests/interop/software.py",  # what a registry does not give; tools/interop.py says so
    "tests/interop/conftest.py",  # a file system without extended attributes
}


class Source(NamedTuple):
    """One file: where it is in the repository, and its text."""

    path: str
    text: str

    @property
    def is_python(self) -> bool:
        return self.path.endswith(".py")

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[-1]


class Breach(NamedTuple):
    """One place where a rule is broken."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


Rule = Callable[[Source], Iterator[Breach]]
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def module_has_a_docstring(source: Source) -> Iterator[Breach]:
    if source.is_python and ast.get_docstring(ast.parse(source.text)) is None:
        yield Breach(source.path, 1, "a module opens by saying what holds and what is elsewhere")


def module_is_not_too_long(source: Source) -> Iterator[Breach]:
    if not source.is_python:
        return
    handler = "/handlers/" in source.path
    limit = HANDLER_LINES_MAX if handler else MODULE_LINES_MAX
    count = source.text.count("\n")
    if count > limit:
        yield Breach(source.path, limit, f"{count} lines, at most {limit}: split it by subject")


def functions_are_not_too_long(source: Source) -> Iterator[Breach]:
    for function in _functions(source):
        assert function.end_lineno is not None
        count = function.end_lineno - function.lineno + 1
        if count > FUNCTION_LINES_MAX:
            yield Breach(source.path, function.lineno,
                         f"{function.name}: {count} lines, at most {FUNCTION_LINES_MAX}")


def functions_take_few_positional_parameters(source: Source) -> Iterator[Breach]:
    for function in _functions(source):
        names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
        count = len(names) - (names[:1] in (["self"], ["cls"]))
        if count > POSITIONAL_MAX:
            yield Breach(source.path, function.lineno, f"{function.name}: {count} positional "
                         f"parameters, at most {POSITIONAL_MAX}: make the rest keyword-only")


def classes_have_telling_names(source: Source) -> Iterator[Breach]:
    if not source.is_python:
        return
    for node in ast.walk(ast.parse(source.text)):
        if isinstance(node, ast.ClassDef) and VAGUE_NAME.search(node.name) and (
                node.name not in KAFKAS_NAMES):
            yield Breach(source.path, node.lineno, f"{node.name}: name it after what it is")


def lines_are_not_too_wide(source: Source) -> Iterator[Breach]:
    if not source.name.endswith((".py", ".pyx", ".js")):
        return
    for number, line in enumerate(source.text.splitlines(), start=1):
        if len(line) > LINE_WIDTH_MAX:
            yield Breach(source.path, number, f"{len(line)} wide, at most {LINE_WIDTH_MAX}")


def words_are_fit_to_print(source: Source) -> Iterator[Breach]:
    rules = [(UNFINISHED, "finish it, or leave it out"),
             (ABSOLUTE_PATH, "a path of one machine"),
             (REGISTRY_HOST, "an address: the machine's settings know where packages come from")]
    if source.is_python:
        rules.append((BARE_IGNORE, "an ignored rule is named"))
        if source.path.startswith("tests/") and source.path not in SKIP_ALLOWED:
            rules.append((SKIP, "a test that does not run shows nothing"))
    for pattern, message in rules:
        for number, line in enumerate(source.text.splitlines(), start=1):
            if found := pattern.search(line):
                yield Breach(source.path, number, f"`{found[0]}`: {message}")


def links_lead_somewhere(source: Source) -> Iterator[Breach]:
    if not source.path.endswith(".md"):
        return
    folder = (REPOSITORY / source.path).parent
    for number, line in enumerate(source.text.splitlines(), start=1):
        for target in LINK.findall(line):
            if not (folder / target).exists():
                yield Breach(source.path, number, f"{target}: no such file")


def text_ends_with_one_newline(source: Source) -> Iterator[Breach]:
    if source.text and (not source.text.endswith("\n") or source.text.endswith("\n\n")):
        yield Breach(source.path, source.text.count("\n"), "end the file with one newline")


RULES: tuple[Rule, ...] = (
    module_has_a_docstring,
    module_is_not_too_long,
    functions_are_not_too_long,
    functions_take_few_positional_parameters,
    classes_have_telling_names,
    lines_are_not_too_wide,
    words_are_fit_to_print,
    links_lead_somewhere,
    text_ends_with_one_newline,
)


def _functions(source: Source) -> Iterator[FunctionNode]:
    if not source.is_python:
        return
    for node in ast.walk(ast.parse(source.text)):
        if isinstance(node, FunctionNode):
            yield node


def sources(repository: Path = REPOSITORY) -> Iterator[Source]:
    """Every text file of the repository, in order."""
    top = [path for path in repository.iterdir() if path.is_file()]
    inside = [path for folder in FOLDERS for path in (repository / folder).rglob("*")]
    for path in sorted(top + inside):
        relative = path.relative_to(repository)
        wanted = path.suffix in SUFFIXES and not SKIPPED.intersection(relative.parts)
        if wanted and path.is_file() and not relative.name.startswith(".setup"):
            yield Source(relative.as_posix(), path.read_text(encoding="utf-8"))


def breaches(source: Source) -> list[Breach]:
    """All breaches in one file."""
    return [breach for rule in RULES for breach in rule(source)]


def main() -> int:
    """Check every file."""
    found = [breach for source in sources() for breach in breaches(source)]
    for breach in found:
        print(breach)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

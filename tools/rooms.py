"""Checks between files: room maps, invariants, and files named in docstrings and documents.

    python -m tools.rooms [PATH ...]    prints one line per breach, of files below the paths if any
                                        are given; exit code 1 if there is any

A room is a package below src/quipu.  The docstring of its `__init__` is its map: a line for each
module and sub-room, where to start reading, and what is not there.

An invariant is declared once, in the docstring of the module that it is about, on a line of its own
that begins with its room and number, `storage.L1`, and two spaces.  The code that maintains it and
a test that would fail without it cite the same name.

A class has a name that no other class has, so that a search for it finds one thing.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

from tools.tidy import REPOSITORY, Breach, Source, sources

ROOT = "src/quipu/"
MESSAGES = "src/quipu/wire/messages/"
EXAMPLES = "tests/tools/"  # tests of these rules make up invariants
MAP_LINE = re.compile(r"^\s*((?:`?\w+(?:\.pyx?|/)`?(?:, +)?)+)\s")
MAP_NAME = re.compile(r"\w+(?:\.pyx?|/)")
STARTS = re.compile(r"\bstart(?:s|ing)?\b", re.IGNORECASE)
ABSENT = re.compile(r"\bnot (?:here|there|in (?:it|this room))\b", re.IGNORECASE)
DECLARED = re.compile(r"^\s*(?P<name>[a-z_]+(?:\.[a-z_]+)*\.[A-Z]{1,2}\d+)\s{2,}\S")
UNQUALIFIED = re.compile(r"^\s{2,}(?P<name>[A-Z]{1,2}\d+)\s{2,}\S")
CITED = re.compile(r"\b[a-z_]+(?:\.[a-z_]+)*\.[A-Z]{1,2}\d+\b")
FILE_NAME = re.compile(r"(?<![\w/.<*-])((?:\w+/)*\w+\.pyx?)\b")
HISTORY = ("CHANGELOG.md", "CONTRIBUTING.md", "tests/test_tidy.py", EXAMPLES)  # name others, too
EMPTY_DOCSTRING = re.compile(r"^(?:See above\b|(?:The same|As above)\b.{0,3}$)")


class Room(NamedTuple):
    """A package: its path below the repository, its map, and what is in it."""

    path: str  # of the __init__
    text: str
    names: frozenset[str]  # files of modules, and sub-rooms with a slash


def rooms(files: Iterable[Source]) -> Iterator[Room]:
    """Every package below src/quipu with the names of its modules and sub-rooms."""
    inside: dict[str, set[str]] = defaultdict(set)
    texts: dict[str, str] = {}
    for source in files:
        if not source.path.startswith(ROOT) or not source.path.endswith((".py", ".pyx")):
            continue
        folder, _, name = source.path.rpartition("/")
        if name == "__init__.py":
            texts[folder] = source.text
            parent, _, own = folder.rpartition("/")
            inside[parent].add(f"{own}/")
        else:
            inside[folder].add(name)
    for folder, text in sorted(texts.items()):
        yield Room(f"{folder}/__init__.py", text, frozenset(inside[folder]))


def map_names_what_is_there(room: Room) -> Iterator[Breach]:
    """The map names each module and sub-room once, and nothing else."""
    docstring = ast.get_docstring(ast.parse(room.text), clean=False) or ""
    named: list[str] = []
    for line in docstring.splitlines():
        if found := MAP_LINE.match(line):
            named += MAP_NAME.findall(found[1])
    for name in sorted(room.names - set(named)):
        yield Breach(room.path, 1, f"the map does not name {name}")
    for name in sorted(set(named) - room.names):
        yield Breach(room.path, 1, f"the map names {name}, which is not there")
    for name in sorted({each for each in named if named.count(each) > 1}):
        yield Breach(room.path, 1, f"the map names {name} more than once")
    if room.names and not STARTS.search(docstring):
        yield Breach(room.path, 1, "the map does not say where to start")
    if room.names and not ABSENT.search(docstring):
        yield Breach(room.path, 1, "the map does not say what is not there")


class Declaration(NamedTuple):
    """Where an invariant is declared."""

    path: str
    line: int


def declarations(files: Iterable[Source]) -> dict[str, list[Declaration]]:
    """Every invariant that a docstring of a module or class below src declares, by its name."""
    declared: dict[str, list[Declaration]] = defaultdict(list)
    for source in files:
        if source.path.startswith(ROOT) and source.is_python:
            for number, line in docstring_lines(source):
                if found := DECLARED.match(line):
                    declared[found["name"]].append(Declaration(source.path, number))
    return declared


@cache
def _nodes(text: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(text)))


def docstring_lines(source: Source) -> Iterator[tuple[int, str]]:
    """The lines of all docstrings of modules and classes, with their numbers."""
    for node in _nodes(source.text):
        if isinstance(node, ast.Module | ast.ClassDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and (
                    isinstance(first.value.value, str)):
                yield from enumerate(first.value.value.splitlines(), start=first.lineno)


def invariants_are_kept_and_tested(files: list[Source]) -> Iterator[Breach]:
    """Each invariant has one declaration, at least one citation in code, and a test."""
    declared = declarations(files)
    uses = citations(files, declared)
    for name, places in sorted(declared.items()):
        path, line = places[0]
        for other in places[1:]:
            yield Breach(other.path, other.line, f"{name} is declared in {path} too")
        if name.split(".")[0] != path.removeprefix(ROOT).split("/")[0]:
            yield Breach(path, line, f"{name} is declared in another room than its own")
        if not uses[name]["src"]:
            yield Breach(path, line, f"{name} is cited where nothing keeps it")
        if not uses[name]["tests"]:
            yield Breach(path, line, f"{name} is named by no test")


def citations(
    files: Iterable[Source], declared: Mapping[str, list[Declaration]]
) -> dict[str, dict[str, int]]:
    """How often each invariant is named in src, besides its declaration, and in tests."""
    uses: dict[str, dict[str, int]] = defaultdict(lambda: {"src": 0, "tests": 0})
    for source in files:
        folder = source.path.split("/")[0]
        if folder not in ("src", "tests") or not source.path.endswith((".py", ".pyx")):
            continue
        for number, line in enumerate(source.text.splitlines(), start=1):
            for name in CITED.findall(line):
                if Declaration(source.path, number) not in declared.get(name, ()):
                    uses[name][folder] += 1
    return uses


def invariants_are_qualified(source: Source) -> Iterator[Breach]:
    """A declaration begins with the room: two rooms may count their invariants alike."""
    if not source.path.startswith(ROOT) or not source.is_python:
        return
    is_inside = False  # the paragraph that lists them
    for number, line in docstring_lines(source):
        is_inside = bool(line.strip()) and (is_inside or line.strip().startswith("Invariants"))
        if is_inside and (found := UNQUALIFIED.match(line)):
            yield Breach(source.path, number, f"{found['name']}: say of which room it is")


def citations_lead_somewhere(files: list[Source]) -> Iterator[Breach]:
    """Every cited invariant is declared."""
    declared = declarations(files)
    top = {room.path.removeprefix(ROOT).split("/")[0] for room in rooms(files)}
    for source in files:
        if not source.path.endswith((".py", ".pyx", ".md")) or source.path.startswith(EXAMPLES):
            continue
        for number, line in enumerate(source.text.splitlines(), start=1):
            for name in CITED.findall(line):
                if name.split(".")[0] in top and name not in declared:
                    yield Breach(source.path, number, f"{name} is declared nowhere")


def docstrings_stand_alone(source: Source) -> Iterator[Breach]:
    """A docstring is a sentence of its own, not a hint at another."""
    if not source.is_python:
        return
    for node in _nodes(source.text):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and (
                EMPTY_DOCSTRING.match(ast.get_docstring(node) or "")):
            yield Breach(source.path, node.lineno, f"{node.name}: say it here, or nothing")


def classes_have_names_of_their_own(files: list[Source]) -> Iterator[Breach]:
    """One name is one class in all rooms; Kafka's messages repeat the names of their parts."""
    first: dict[str, str] = {}
    for source in files:
        if not source.is_python or not source.path.startswith(ROOT) or (
                source.path.startswith(MESSAGES)):
            continue
        for node in ast.parse(source.text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                there = first.setdefault(node.name, source.path)
                if there != source.path:
                    yield Breach(source.path, node.lineno, f"{node.name} is a class of {there} too")


def files_that_are_named_exist(files: list[Source]) -> Iterator[Breach]:
    """A file that is named is there: for code beside it or further up, for documents anywhere."""
    paths = {source.path for source in files}
    endings = {"/".join(path.split("/")[start:]) for path in paths
               for start in range(path.count("/") + 1)}
    for source in files:
        if source.path.startswith(HISTORY) or not source.path.endswith((".py", ".pyx", ".md")):
            continue
        for number, line in _prose(source):
            for name in FILE_NAME.findall(line):
                is_document = source.path.endswith(".md") or "/" not in source.path
                if name not in endings if is_document else not any(
                        place in paths for place in _places(source.path, name)):
                    yield Breach(source.path, number, f"{name} is not there")


def _prose(source: Source) -> Iterator[tuple[int, str]]:
    """The lines of a document; of code, the lines of docstrings and comments."""
    lines = list(enumerate(source.text.splitlines(), start=1))
    if not source.is_python:
        yield from lines
        return
    inside: set[int] = set()
    for node in _nodes(source.text):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and (
                isinstance(node.value.value, str)):
            inside.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    for number, line in lines:
        if number in inside:
            yield number, line
        elif "# " in line:
            yield number, line.rpartition("# ")[2]


def _places(path: str, name: str) -> Iterator[str]:
    """Where a file that is named in `path` may be: beside it, in a folder above, in src/quipu."""
    folder = path
    while folder:
        folder = folder.rpartition("/")[0]
        yield f"{folder}/{name}" if folder else name
    yield ROOT + name


def breaches(files: list[Source]) -> Iterator[Breach]:
    """All breaches of these rules in the repository."""
    for room in rooms(files):
        yield from map_names_what_is_there(room)
    yield from invariants_are_kept_and_tested(files)
    yield from citations_lead_somewhere(files)
    yield from classes_have_names_of_their_own(files)
    yield from files_that_are_named_exist(files)
    for source in files:
        yield from invariants_are_qualified(source)
        yield from docstrings_stand_alone(source)


def main() -> int:
    """Check every file; print breaches below the given paths."""
    wanted = tuple(sys.argv[1:]) or ("",)
    found = [breach for breach in breaches(list(sources(REPOSITORY)))
             if breach.path.startswith(wanted)]
    for breach in found:
        print(breach)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

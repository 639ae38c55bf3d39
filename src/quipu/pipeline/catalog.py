"""The catalog: the connections, sources, views and sinks that were created, stored in a directory.

    DIR/catalog.json   all objects, replaced as a whole; mode 0600, because it holds passwords
    DIR/catalog.lock   locked by the process that may write; holds its process id

An object is stored as its statement and the names of the objects it uses; a source also with the
external facts of its planning (`plan.external_facts.FactRecord`), so that it is planned the same
again after a restart.

Invariants
    pipeline.C1  a crash leaves the old catalog or the new one, never a part: write, fsync, rename,
                 fsync
    pipeline.C2  one writer at a time
    pipeline.C3  a file that cannot be read is not overwritten
"""

import fcntl
import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from quipu.model.errors import CorruptLog, ErrorKind, QuipuError
from quipu.pipeline.durable import replace_file
from quipu.pipeline.plan.external_facts import FactRecord
from quipu.pipeline.sql.statements import ObjectKind

FORMAT = 1
FILE = "catalog.json"
LOCK = "catalog.lock"
SIZE_MAX = 1 << 30
_FIELDS = {"kind": str, "name": str, "text": str, "uses": list, "materialized": bool,
           "facts": dict}


class CatalogInUse(QuipuError):
    """Another process writes this catalog."""

    kind = ErrorKind.RETRY


class CatalogUnreadable(CorruptLog):
    """The file is damaged, or of a later version of Quipu, or may not be read by this user."""


class CatalogUnwritable(QuipuError):
    """The file cannot be written; the old catalog is unchanged."""


@dataclass(frozen=True)
class CatalogEntry:
    """One object of the catalog: a connection, source, view or sink."""

    kind: ObjectKind
    name: str
    text: str = field(repr=False)  # the statement, with its passwords
    uses: tuple[str, ...] = ()  # names of the objects that it needs
    materialized: bool = False
    facts: FactRecord = field(default_factory=dict)


class Catalog:
    """The objects by name; objects of different kinds share one namespace.

    `open` takes the lock and may write; `read` only reads.
    """

    def __init__(self, directory: Path, entries: Iterable[CatalogEntry], lock: int | None) -> None:
        self.directory = directory
        self._entries = {entry.name: entry for entry in entries}
        self._lock = lock

    @classmethod
    def open(cls, directory: Path) -> Self:
        """The catalog of a directory, which is created if it does not exist."""
        try:
            directory.mkdir(0o700, parents=True, exist_ok=True)  # rows and passwords are in it
            lock = _lock(directory / LOCK)
        except OSError as error:
            raise CatalogUnwritable(f"{directory} cannot be written: {error}") from error
        try:
            return cls(directory, _load(directory / FILE), lock)
        except BaseException:
            os.close(lock)
            raise

    @classmethod
    def read(cls, directory: Path) -> Self:
        """The catalog as it is now, read-only."""
        return cls(directory, _load(directory / FILE), None)

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- reads

    def find(self, name: str) -> CatalogEntry | None:
        return self._entries.get(name)

    def entries(self, kind: ObjectKind | None = None) -> tuple[CatalogEntry, ...]:
        """Objects in the order of creation; an object comes after those that it uses."""
        return tuple(entry for entry in self._entries.values() if kind in (None, entry.kind))

    def names(self) -> Mapping[ObjectKind, list[str]]:
        """The names of the objects by kind, for completion in the shell."""
        return {kind: [entry.name for entry in self.entries(kind)] for kind in ObjectKind}

    def graph(self) -> Mapping[str, tuple[str, ...]]:
        """The names of the objects that each object uses."""
        return {entry.name: entry.uses for entry in self._entries.values()}

    # -- changes, which are on disk when these return

    def put(self, entry: CatalogEntry) -> None:
        """Add an object, or replace the one of its name."""
        missing = [name for name in entry.uses if name not in self._entries]
        assert not missing, f"{entry.name} uses {missing}, which do not exist"
        self._store({**self._entries, entry.name: entry})

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects, all of them or none."""
        gone = set(names)
        left = {name: entry for name, entry in self._entries.items() if name not in gone}
        dangling = [entry.name for entry in left.values() if gone & set(entry.uses)]
        assert not dangling, f"{dangling} use objects that are dropped"
        self._store(left)

    def _store(self, entries: Mapping[str, CatalogEntry]) -> None:
        assert self._lock is not None, "this catalog is read-only"
        content = {"format": FORMAT, "entries": [_to_json(each) for each in _ordered(entries)]}
        try:
            # pipeline.C1
            replace_file(self.directory / FILE, json.dumps(content, indent=1).encode(), 0o600)
        except OSError as error:
            raise CatalogUnwritable(f"{self.directory / FILE} cannot be written: {error}; nothing "
                                    "has changed") from error
        self._entries = {entry.name: entry for entry in _ordered(entries)}


def _ordered(entries: Mapping[str, CatalogEntry]) -> list[CatalogEntry]:
    """Entries in their order, but each after the entries that it uses."""
    done: dict[str, CatalogEntry] = {}

    def visit(name: str) -> None:
        if name not in done:
            for used in entries[name].uses:
                visit(used)
            done[name] = entries[name]

    for name in entries:
        visit(name)
    return list(done.values())


# -- the file


def _load(path: Path) -> list[CatalogEntry]:
    """The entries of the file; raises CatalogUnreadable for unknown content (pipeline.C3)."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read() if size <= SIZE_MAX else b""
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CatalogUnreadable(f"{path} cannot be read: {error}") from error
    if size > SIZE_MAX:
        raise CatalogUnreadable(f"{path} has {size} bytes, at most {SIZE_MAX}: {_KEPT}")
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CatalogUnreadable(f"{path} is damaged ({error}): {_KEPT}") from error
    version = content.get("format") if isinstance(content, dict) else None
    if isinstance(version, int) and version > FORMAT:
        raise CatalogUnreadable(f"{path} has format {version}, this Quipu knows {FORMAT}: use the "
                                "Quipu that wrote it, or a later one; the file is unchanged")
    try:
        if version != FORMAT:
            raise TypeError(f"its format is {version!r}")
        return _checked([_from_json(each) for each in content["entries"]])
    except (KeyError, TypeError, ValueError) as error:
        raise CatalogUnreadable(f"{path} is damaged ({error}): {_KEPT}") from error


_KEPT = "the file is unchanged; restore it from a copy, or move it away to start empty"


def _checked(entries: list[CatalogEntry]) -> list[CatalogEntry]:
    seen: set[str] = set()
    for entry in entries:
        if entry.name in seen:
            raise ValueError(f"{entry.name} occurs twice")
        if missing := [name for name in entry.uses if name not in seen]:
            raise ValueError(f"{entry.name} uses {missing[0]}, which does not come before it")
        seen.add(entry.name)
    return entries


def _to_json(entry: CatalogEntry) -> dict[str, object]:
    return {"kind": entry.kind.value, "name": entry.name, "text": entry.text,
            "uses": list(entry.uses), "materialized": entry.materialized,
            "facts": dict(entry.facts)}


def _from_json(given: object) -> CatalogEntry:
    if not isinstance(given, dict) or set(given) != set(_FIELDS):
        raise TypeError("an object has unknown or missing fields")
    for name, kind in _FIELDS.items():
        if not isinstance(given[name], kind):
            raise TypeError(f"{name} is no {kind.__name__}")
    if not all(isinstance(name, str) for name in given["uses"]):
        raise TypeError("an item of uses is no name")
    return CatalogEntry(ObjectKind(given["kind"]), given["name"], given["text"],
                        tuple(given["uses"]), given["materialized"], given["facts"])


# -- the lock


def _lock(path: Path) -> int:
    """Take the lock (pipeline.C2); the kernel releases it when the process ends, in any way."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        program = Path(sys.argv[0]).name if sys.argv else "python"
        os.write(descriptor, f"process {os.getpid()} ({program})\n".encode())
    except BlockingIOError:
        holder = os.read(descriptor, 1000).decode(errors="replace").strip()
        os.close(descriptor)
        raise CatalogInUse(
            f"{path.parent} is in use by {holder or 'another process'}; end it, or give another "
            "directory") from None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor

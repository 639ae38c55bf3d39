"""Versions of a view: which messages each has seen, and which files its append-only tables have.

    <directory>/<version>.json

Version n + 1 is made by batch n of the view's streaming query.  The tables by key of the view have
versions of their own with the same numbers (`tables/commits.py`).

Invariants
    pipeline.V1  a version is there as a whole or not at all, and never changes
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quipu.pipeline import durable
from quipu.pipeline.durable import published
from quipu.pipeline.reading.positions import Reached
from quipu.pipeline.tables.contract import UnknownVersion
from quipu.pipeline.views.append_files import RowFile
from quipu.pipeline.views.inputs import positions_from_json, positions_to_json

NO_VERSION = -1


@dataclass(frozen=True)
class SourceCounts:
    """How much was read of one source of a view since the view was created."""

    messages: int = 0
    size: int = 0  # bytes of keys and values
    dead: int = 0  # messages that could not be decoded

    def plus(self, other: "SourceCounts") -> "SourceCounts":
        return SourceCounts(self.messages + other.messages, self.size + other.size,
                            self.dead + other.dead)


@dataclass(frozen=True)
class AppendTable:
    """An append-only table in one version: all its files, and those that this version added."""

    files: tuple[RowFile, ...] = ()
    added: tuple[RowFile, ...] = ()  # maybe compacted into others of `files` already

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def file_names(self) -> set[str]:
        return {file.file for file in (*self.files, *self.added)}


@dataclass(frozen=True)
class Version:
    """One version of a view.  Sources are numbered as in the view's `ViewInputs`."""

    number: int = NO_VERSION
    base: int = NO_VERSION  # the version that it was made from
    time_ms: int = 0  # when it was made
    positions: tuple[Reached, ...] = ()  # the next message of each source
    counts: tuple[SourceCounts, ...] = ()
    appended: dict[int, AppendTable] = field(default_factory=dict)  # of sources without keys
    dead: dict[int, AppendTable] = field(default_factory=dict)  # dead letters

    def to_json(self) -> str:
        return json.dumps({
            "number": self.number, "base": self.base, "time_ms": self.time_ms,
            "places": positions_to_json(self.positions),
            "counts": [vars(each) for each in self.counts],
            "grown": _tables_to_json(self.appended), "dead": _tables_to_json(self.dead),
        })

    @classmethod
    def from_json(cls, text: str) -> "Version":
        found = json.loads(text)
        return cls(
            found["number"], found["base"], found["time_ms"],
            tuple(positions_from_json(found["places"])),
            tuple(SourceCounts(**each) for each in found["counts"]),
            _tables_from_json(found["grown"]), _tables_from_json(found["dead"]),
        )


def _tables_to_json(tables: dict[int, AppendTable]) -> dict[str, Any]:
    return {str(number): {"pieces": each.files, "added": each.added}
            for number, each in tables.items()}


def _tables_from_json(found: dict[str, Any]) -> dict[int, AppendTable]:
    return {int(number): AppendTable(tuple(RowFile(*file) for file in each["pieces"]),
                                     tuple(RowFile(*file) for file in each["added"]))
            for number, each in found.items()}


def numbers(directory: Path) -> list[int]:
    """The numbers of the versions that are kept, oldest first."""
    return sorted(int(path.stem) for path in directory.glob("*.json") if path.stem.isdecimal())


def read(directory: Path, number: int) -> Version:
    """The version of a number; UnknownVersion if it is not kept."""
    try:
        found = Version.from_json(published(version_path(directory, number)))
    except FileNotFoundError as error:
        raise UnknownVersion(f"{directory}: version {number} is not kept") from error
    assert found.number == number, (found.number, number)
    return found


def newest(directory: Path) -> int:
    """The number of the newest version; NO_VERSION if there is none."""
    return max(numbers(directory), default=NO_VERSION)


def latest(directory: Path) -> Version:
    """The newest version; an empty one if there is none yet."""
    number = newest(directory)
    return Version() if number == NO_VERSION else read(directory, number)


def publish(directory: Path, version: Version) -> None:
    """Make a version visible, as a whole (pipeline.V1); FileExistsError if its number is taken."""
    assert version.number > version.base, (version.number, version.base)
    assert len(version.counts) == len(version.positions), version.number  # both by source
    durable.publish(version_path(directory, version.number), version.to_json())


def remove(directory: Path, keep: set[int]) -> None:
    """Delete all versions but some."""
    for number in numbers(directory):
        if number not in keep:
            version_path(directory, number).unlink(missing_ok=True)


def version_path(directory: Path, number: int) -> Path:
    """The file of a version."""
    return directory / f"{number:020d}.json"

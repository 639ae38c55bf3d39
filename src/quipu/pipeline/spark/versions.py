"""Versions of a view: which messages it has seen, and what its growing tables hold.

    <directory>/<version>.json

A version is the number of a batch of the view's stream.  The tables of the view have versions of
their own with the same numbers (`tables/commits.py`); this one is published after all of them, so
whoever finds it finds everything.  A batch that is tried again finds that it is published.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quipu.pipeline import durable
from quipu.pipeline.durable import published
from quipu.pipeline.reading.positions import Reached
from quipu.pipeline.spark.feed import places_from_json, places_to_json
from quipu.pipeline.spark.growing import Piece
from quipu.pipeline.tables.contract import UnknownVersion

NO_VERSION = -1


@dataclass(frozen=True)
class Counts:
    """Of one source of the view, since its beginning."""

    messages: int = 0
    size: int = 0  # bytes of keys and values
    dead: int = 0  # messages that could not be decoded

    def plus(self, other: "Counts") -> "Counts":
        return Counts(self.messages + other.messages, self.size + other.size,
                      self.dead + other.dead)


@dataclass(frozen=True)
class Growth:
    """A growing table in one version."""

    pieces: tuple[Piece, ...] = ()
    added: tuple[Piece, ...] = ()  # by this very version

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)

    def files(self) -> set[str]:
        return {piece.file for piece in (*self.pieces, *self.added)}


@dataclass(frozen=True)
class Version:
    """See above.  Sources are numbered as in the view's feed."""

    number: int = NO_VERSION
    base: int = NO_VERSION
    time_ms: int = 0  # when it was published
    places: tuple[Reached, ...] = ()  # the next message of each source
    counts: tuple[Counts, ...] = ()
    grown: dict[int, Growth] = field(default_factory=dict)  # rows of sources that only grow
    dead: dict[int, Growth] = field(default_factory=dict)  # dead letters

    def to_json(self) -> str:
        return json.dumps({
            "number": self.number, "base": self.base, "time_ms": self.time_ms,
            "places": places_to_json(self.places),
            "counts": [vars(each) for each in self.counts],
            "grown": _growths(self.grown), "dead": _growths(self.dead),
        })

    @classmethod
    def from_json(cls, text: str) -> "Version":
        found = json.loads(text)
        return cls(
            found["number"], found["base"], found["time_ms"],
            tuple(places_from_json(found["places"])),
            tuple(Counts(**each) for each in found["counts"]),
            _grown(found["grown"]), _grown(found["dead"]),
        )


def _growths(growths: dict[int, Growth]) -> dict[str, Any]:
    return {str(number): {"pieces": each.pieces, "added": each.added}
            for number, each in growths.items()}


def _grown(found: dict[str, Any]) -> dict[int, Growth]:
    return {int(number): Growth(tuple(Piece(*piece) for piece in each["pieces"]),
                                tuple(Piece(*piece) for piece in each["added"]))
            for number, each in found.items()}


def numbers(directory: Path) -> list[int]:
    """The versions that are kept, oldest first."""
    return sorted(int(path.stem) for path in directory.glob("*.json") if path.stem.isdecimal())


def read(directory: Path, number: int) -> Version:
    """One version that is kept."""
    try:
        return Version.from_json(published(_path(directory, number)))
    except FileNotFoundError as error:
        raise UnknownVersion(f"{directory}: version {number} is not kept") from error


def newest(directory: Path) -> int:
    """The number of the newest version."""
    return max(numbers(directory), default=NO_VERSION)


def latest(directory: Path) -> Version:
    """The newest version; one with nothing in it if there is none yet."""
    number = newest(directory)
    return Version() if number == NO_VERSION else read(directory, number)


def publish(directory: Path, version: Version) -> None:
    """Make a version known, whole or not at all."""
    durable.publish(_path(directory, version.number), version.to_json())


def forget(directory: Path, keep: set[int]) -> None:
    """Drop all versions but some."""
    for number in numbers(directory):
        if number not in keep:
            _path(directory, number).unlink(missing_ok=True)


def _path(directory: Path, number: int) -> Path:
    return directory / f"{number:020d}.json"

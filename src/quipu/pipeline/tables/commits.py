"""The versions of a table: one driver commits them, each in one atomic step.

    <directory>/table.json                the shape, written once
    <directory>/versions/<version>.json   a manifest: the state of every bucket in that version
    <directory>/files/                    the files of the manifests (`files.py`)

A version is the number of the batch that made it.  A batch is committed when its manifest has its
final name, and not before; so a batch that is tried again after a crash either finds its version
(then it has nothing to do) or does all of it again.  Of two drivers that commit one version only
the first succeeds; the other gets VersionTaken.

    shape = create(directory, event_shape(source), buckets=16, secret=SystemRng().token(16))
    base = begin(directory, version)                  None: this version is committed already
    … on executors: merge_bucket(directory, shape, base.bucket(b), parcels, version) …
    commit(directory, base, version, new_states)      buckets without parcels need no merge
    latest(directory)                                 the newest manifest
"""

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from quipu.pipeline.durable import flush_directory, publish, published
from quipu.pipeline.envelopes.events import EventShape
from quipu.pipeline.tables.contract import (
    BucketState,
    ShapeDiffers,
    TableError,
    TableShape,
    UnknownVersion,
)
from quipu.pipeline.tables.store import files_directory

NO_VERSION = -1  # of a table to which nothing was committed


class VersionTaken(TableError):
    """Another driver has committed this version with other content."""


@dataclass(frozen=True)
class Manifest:
    """A table in one version.  Buckets that are not listed are empty."""

    version: int
    base: int  # the version before it
    buckets: tuple[BucketState, ...] = ()

    def bucket(self, number: int) -> BucketState:
        """The state of one bucket."""
        for state in self.buckets:
            if state.bucket == number:
                return state
        return BucketState(number)

    @property
    def rows(self) -> int:
        return sum(state.rows for state in self.buckets)

    @property
    def errors(self) -> int:
        """The outstanding errors: with the strict policy, reading fails if it is above 0."""
        return sum(state.errors for state in self.buckets)

    def invariants(self) -> None:
        """Assert what holds of every version, and of each of its buckets."""
        assert NO_VERSION <= self.base <= self.version, (self.base, self.version)
        assert self.base < self.version or self.version == NO_VERSION, self.base
        numbers = [state.bucket for state in self.buckets]
        assert all(low < high for low, high in pairwise(numbers)), numbers
        for state in self.buckets:
            assert state.version <= self.version, (state.version, self.version)
            state.invariants()

    def files(self) -> set[str]:
        """Every file that this version needs."""
        return {name for state in self.buckets
                for name in state.files(changes=state.version == self.version)}


class TableAt(NamedTuple):
    """A table, in one version."""

    directory: Path
    shape: TableShape
    manifest: Manifest


def create(directory: Path, events: EventShape, *, buckets: int, secret: bytes) -> TableShape:
    """Create a table if it does not exist; returns its shape.

    An existing table keeps its number of buckets and its secret; another shape of events raises
    ShapeDiffers, because the stored rows do not fit it.
    """
    wanted = TableShape(events, buckets, secret)
    path = directory / "table.json"
    if not path.exists():
        versions_directory(directory).mkdir(parents=True, exist_ok=True)
        files_directory(directory).mkdir(exist_ok=True)
        with suppress(FileExistsError):  # another process was faster
            publish(path, wanted.to_json())
    shape = open_shape(directory)
    if shape.events != events:
        raise ShapeDiffers(f"{path}: the table was made for other columns or another envelope")
    return shape


def open_shape(directory: Path) -> TableShape:
    """The shape of a table."""
    path = directory / "table.json"
    return TableShape.from_json(published(path))


def versions_directory(directory: Path) -> Path:
    return directory / "versions"


def versions(directory: Path) -> list[int]:
    """The versions that are kept, oldest first."""
    return sorted(int(path.stem) for path in versions_directory(directory).glob("*.json")
                  if path.stem.isdecimal())


def manifest(directory: Path, version: int) -> Manifest:
    """One version that is kept."""
    try:
        found = json.loads(published(_path(directory, version)))
    except FileNotFoundError as error:
        raise UnknownVersion(f"{directory}: version {version} is not kept") from error
    buckets = tuple(BucketState.from_json(each) for each in found["buckets"])
    return Manifest(found["version"], found["base"], buckets)


def latest(directory: Path) -> Manifest:
    """The newest version; version -1, with nothing in it, if there is none yet."""
    known = versions(directory)
    return manifest(directory, known[-1]) if known else Manifest(NO_VERSION, NO_VERSION)


def begin(directory: Path, version: int) -> Manifest | None:
    """The version before a batch; None if the batch, or a later one, is committed already."""
    newest = latest(directory)
    return newest if newest.version < version else None


def commit(
    directory: Path, base: Manifest, version: int, changed: Iterable[BucketState],
) -> Manifest:
    """Commit a version: `base` with the buckets that changed."""
    assert version > base.version, (version, base.version)
    states = {state.bucket: state for state in base.buckets}
    merged: set[int] = set()
    for state in changed:
        assert state.version == version, (state.version, version)
        assert state.bucket not in merged, state.bucket
        before = base.bucket(state.bucket)
        assert state.next_number >= before.next_number, state.bucket  # pipeline.T1
        merged.add(state.bucket)
        states[state.bucket] = state
    made = Manifest(version, base.version, tuple(states[each] for each in sorted(states)))
    made.invariants()
    flush_directory(files_directory(directory))  # names of files before the manifest with them
    text = json.dumps({"version": version, "base": base.version,
                       "buckets": [state.to_json() for state in made.buckets]})
    try:
        publish(_path(directory, version), text)
    except FileExistsError:
        if manifest(directory, version) != made:
            raise VersionTaken(f"{directory}: version {version} was committed by "
                               "another driver; is a second driver running?") from None
    return made


def _path(directory: Path, version: int) -> Path:
    return versions_directory(directory) / f"{version:020d}.json"

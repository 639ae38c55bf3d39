"""Versions of a table: made by one driver, each by one atomic step.

    <directory>/table.json                the shape, written once
    <directory>/versions/<version>.json   a manifest: the state of every bucket in that version
    <directory>/files/                    what the manifests refer to (`files.py`)

A version is the number of the batch that made it.  A batch is committed when its manifest has its
final name, and not before; so a batch that is tried again after a crash either finds its version
(then it has nothing to do) or does all of it again.  Of two drivers that commit one version only
the first succeeds, and the other is told.

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
    """Somebody else has committed this version, differently."""


@dataclass(frozen=True)
class Manifest:
    """A table in one version.  Buckets that are not listed are empty."""

    version: int
    base: int  # the version that it was made from
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
        """How many errors are outstanding: with the strict policy, reading fails if any is."""
        return sum(state.errors for state in self.buckets)

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
    """Make a table, or find that it is there; the shape that it has.

    The number of buckets and the secret are the first maker's; another shape of events is an
    error, because what is stored does not fit it.
    """
    wanted = TableShape(events, buckets, secret)
    path = directory / "table.json"
    if not path.exists():
        versions_directory(directory).mkdir(parents=True, exist_ok=True)
        files_directory(directory).mkdir(exist_ok=True)
        with suppress(FileExistsError):  # somebody else was faster
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
    """What a batch builds on; None if the batch, or a later one, is committed already."""
    newest = latest(directory)
    return newest if newest.version < version else None


def commit(
    directory: Path, base: Manifest, version: int, changed: Iterable[BucketState],
) -> Manifest:
    """Make a version out of `base` and the buckets that changed."""
    assert version > base.version, (version, base.version)
    states = {state.bucket: state for state in base.buckets}
    for state in changed:
        assert state.version == version, (state.version, version)
        states[state.bucket] = state
    made = Manifest(version, base.version, tuple(states[each] for each in sorted(states)))
    flush_directory(files_directory(directory))  # names before the manifest that has them
    text = json.dumps({"version": version, "base": base.version,
                       "buckets": [state.to_json() for state in made.buckets]})
    try:
        publish(_path(directory, version), text)
    except FileExistsError:
        if manifest(directory, version) != made:
            raise VersionTaken(f"{directory}: version {version} was committed by "
                               "somebody else; is a second driver running?") from None
    return made


def _path(directory: Path, version: int) -> Path:
    return versions_directory(directory) / f"{version:020d}.json"

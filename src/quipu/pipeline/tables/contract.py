"""The shape of a table, and the state of each of its buckets, as plain data.

A table stores, for every identity, a row (or an error, or a count), in independent buckets.  A
bucket has two kinds of parts, all in files that never change:

    data   rows, in the order in which they came.  A pointer is the number of the file within the
           bucket, and the row within the file.
    runs   entries, sorted by fingerprint: fingerprint, pointer, action, order or count.
           Of the entries with one fingerprint the one in the newest run counts.

Each version of a bucket is a list of runs and of data files, and its changes: the run of the
version itself, whose entries also have the pointer that each one replaced.  So the cost of a
version depends on its batch: rows are not copied when others change, and the changelog is pointers.

Invariants
    pipeline.T1  the content of a file never changes, and its name is never used for another one
    pipeline.T2  a run has a fingerprint at most once
    pipeline.T3  an entry's pointer is into a data file of the same version of the bucket
    pipeline.T4  dead rows of a data file are counted exactly: rows - dead entries point into it

Not here: files (`files.py`), folding (`merging.py`), versions (`commits.py`).
"""

import base64
import json
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import ipc

from quipu.pipeline.envelopes.events import EventShape, Keeping
from quipu.pipeline.envelopes.fingerprints import SECRET_SIZE
from quipu.pipeline.envelopes.parcels import BUCKETS_MAX

NO_ROW = -1  # instead of a pointer: there was, or is, no visible row
MOVED = -2  # instead of the pointer that an entry replaced: the same row was moved
ROW_BITS = 32
ROW_MASK = (1 << ROW_BITS) - 1


class TableError(Exception):
    """A table cannot be read or written; the message names the file."""


class CorruptFile(TableError):
    """The bytes of a file are not those that were written."""


class MissingFile(TableError):
    """A file that a version refers to does not exist."""


class UnknownVersion(TableError):
    """A version was never committed, or is no longer kept."""


class ShapeDiffers(TableError):
    """The table in this directory has another shape."""


@dataclass(frozen=True)
class TableShape:
    """The shape of a table; `secret` is 16 random bytes, made when the table is created."""

    events: EventShape
    buckets: int
    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not 1 <= self.buckets <= BUCKETS_MAX:
            raise ValueError(f"{self.buckets} buckets; there can be 1 to {BUCKETS_MAX}")
        if self.events.timed and self.buckets != 1:
            raise ValueError("a timed table has one bucket: progress is about all rows")
        if len(self.secret) != SECRET_SIZE:
            raise ValueError(f"a secret of {len(self.secret)} bytes instead of {SECRET_SIZE}")

    @property
    def counts(self) -> bool:
        return self.events.keeping is Keeping.COUNTS

    @property
    def stored(self) -> pa.Schema:
        """The columns of data files: the error, if errors are kept, and the row."""
        return pa.schema(list(self.events.schema)[self.events.stored_start:])

    def to_json(self) -> str:
        shape = self.events
        return json.dumps({
            "format": 1, "keeping": shape.keeping.value, "ordered": shape.ordered,
            "timed": shape.timed, "errors": shape.errors, "buckets": self.buckets,
            "secret": self.secret.hex(),
            "row": base64.b64encode(shape.row.serialize().to_pybytes()).decode(),
        })

    @classmethod
    def from_json(cls, text: str) -> "TableShape":
        found = json.loads(text)
        if found.get("format") != 1:
            raise ShapeDiffers(f"a table of format {found.get('format')}; this program knows 1")
        row = ipc.read_schema(pa.py_buffer(base64.b64decode(found["row"])))
        return cls(
            EventShape(keeping=Keeping(found["keeping"]), row=row, ordered=found["ordered"],
                       timed=found["timed"], errors=found["errors"]),
            found["buckets"], bytes.fromhex(found["secret"]))


class RunRef(NamedTuple):
    """A run: its file, and the number of its entries."""

    file: str
    entries: int


class DataRef(NamedTuple):
    """A data file, its number, and how many of its rows are dead: no entry points to them."""

    number: int
    file: str
    rows: int
    dead: int


@dataclass(frozen=True)
class BucketState:
    """One bucket in one version; also the result of a merge.  It can be pickled, and is JSON."""

    bucket: int
    version: int = -1  # in which it changed last; `changes` and `befores` are of that version
    runs: tuple[RunRef, ...] = ()  # newest first
    data: tuple[DataRef, ...] = ()  # by number
    next_number: int = 0
    rows: int = 0  # visible rows, with copies
    errors: int = 0  # outstanding
    changes: str = ""  # the file with the run of this version; none if nothing changed
    befores: tuple[DataRef, ...] = ()  # data files with the rows that it replaced
    waiting: str = ""  # timed tables: the file with events whose time is still open
    progress: str = ""  # timed tables: the closed times (`timing.py`)

    def invariants(self) -> None:
        """Assert what holds of every state; the cost is by the number of files, not of rows."""
        numbers = [data.number for data in self.data]
        assert all(low < high for low, high in pairwise(numbers)), numbers  # pipeline.T1
        assert not numbers or 0 <= numbers[0] <= numbers[-1] < self.next_number, numbers
        for data in self.data:
            assert 0 <= data.dead < data.rows, data  # pipeline.T4; a file of dead rows is dropped
        assert all(run.entries >= 0 for run in self.runs), self.runs
        assert self.rows >= 0, self.rows
        assert self.errors >= 0, self.errors
        assert self.changes or not self.befores, self.befores

    @property
    def living(self) -> int:
        """The number of rows of data files that an entry points to (pipeline.T4)."""
        return sum(data.rows - data.dead for data in self.data)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> "BucketState":
        return cls(**{
            **found,
            "runs": tuple(RunRef(*each) for each in found["runs"]),
            "data": tuple(DataRef(*each) for each in found["data"]),
            "befores": tuple(DataRef(*each) for each in found["befores"]),
        })

    def files(self, *, changes: bool) -> set[str]:
        """Every file that is needed to read this state, and with `changes` also its changes."""
        names = {run.file for run in self.runs} | {data.file for data in self.data}
        names.add(self.waiting)
        if changes:
            names |= {self.changes, *(data.file for data in self.befores)}
        return names - {""}

"""The life cycles of a remote segment and of a partition's deletion, as tables.

    segment    COPY_SEGMENT_STARTED ─► COPY_SEGMENT_FINISHED
                        └──────────────────────┴──► DELETE_SEGMENT_STARTED ─► ..._FINISHED
    deletion   DELETE_PARTITION_MARKED ─► ..._STARTED ─► ..._FINISHED

Invariant
    remote.M1  a state changes only along its table; staying in a state is a retry, and allowed
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, TypeVar

from quipu.remote.metadata.errors import InvalidTransition


class RemoteLogSegmentState(IntEnum):
    """How far a segment is; the numbers are Kafka's, and are stored."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


class RemotePartitionDeleteState(IntEnum):
    """How far the deletion of a partition is; the numbers are Kafka's, and are stored."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


COPY_STARTED: Final = RemoteLogSegmentState.COPY_SEGMENT_STARTED
COPY_FINISHED: Final = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETE_STARTED: Final = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
DELETE_FINISHED: Final = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
PARTITION_MARKED: Final = RemotePartitionDeleteState.DELETE_PARTITION_MARKED
PARTITION_STARTED: Final = RemotePartitionDeleteState.DELETE_PARTITION_STARTED
PARTITION_FINISHED: Final = RemotePartitionDeleteState.DELETE_PARTITION_FINISHED

SEGMENT_NEXT: Final[Mapping[RemoteLogSegmentState | None, frozenset[RemoteLogSegmentState]]] = {
    None: frozenset({COPY_STARTED}),
    COPY_STARTED: frozenset({COPY_FINISHED, DELETE_STARTED}),
    COPY_FINISHED: frozenset({DELETE_STARTED}),
    DELETE_STARTED: frozenset({DELETE_FINISHED}),
    DELETE_FINISHED: frozenset(),
}
DELETE_NEXT: Final[
    Mapping[RemotePartitionDeleteState | None, frozenset[RemotePartitionDeleteState]]
] = {
    None: frozenset({PARTITION_MARKED}),
    PARTITION_MARKED: frozenset({PARTITION_STARTED}),
    PARTITION_STARTED: frozenset({PARTITION_FINISHED}),
    PARTITION_FINISHED: frozenset(),
}
assert SEGMENT_NEXT.keys() == {None, *RemoteLogSegmentState}
assert DELETE_NEXT.keys() == {None, *RemotePartitionDeleteState}

S = TypeVar("S", RemoteLogSegmentState, RemotePartitionDeleteState)


def is_valid_transition(table: Mapping[S | None, frozenset[S]], source: S | None, to: S) -> bool:
    """Whether `table` allows to go from `source` (None: nothing is stored yet) to `to`."""
    return to is source or to in table[source]  # remote.M1


def check_transition(
    table: Mapping[S | None, frozenset[S]], source: S | None, to: S, subject: str
) -> None:
    """Raise `InvalidTransition` that names `subject`, unless `table` allows to go to `to`."""
    if is_valid_transition(table, source, to):
        return
    allowed = " or ".join(sorted(each.name for each in table[source])) or "nothing"
    raise InvalidTransition(
        f"{subject} cannot go from {source.name if source is not None else 'no state'} to "
        f"{to.name}; only {allowed} may follow")

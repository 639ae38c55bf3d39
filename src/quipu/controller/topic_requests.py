"""What clients request: topics to create, and more partitions of topics."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from quipu.model.errors import Code, RequestError

USE_DEFAULT: Final = -1

Assignment = Sequence[int]  # the brokers of one partition


class NewTopic(NamedTuple):
    """A topic to create."""

    name: str
    partition_count: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: Sequence[tuple[int, Assignment]] = ()  # (partition, its brokers)
    configs: Sequence[tuple[str, str | None]] = ()


class NewPartitions(NamedTuple):
    """A topic whose number of partitions is to grow."""

    name: str
    total: int  # partitions that it is to have
    assignments: Sequence[Assignment] | None = None


def assigned_in_order(wanted: NewTopic) -> list[Assignment]:
    """The brokers of each partition, from 0 on, of a topic that the client assigns itself."""
    assert wanted.assignments, wanted
    for name, value in (("number of partitions", wanted.partition_count),
                        ("replication factor", wanted.replication_factor)):
        if value != USE_DEFAULT:
            raise RequestError(f"with a manual assignment the {name} must be -1, not {value}",
                               code=Code.INVALID_REQUEST)
    placed = dict(wanted.assignments)
    if len(placed) != len(wanted.assignments) or sorted(placed) != list(range(len(placed))):
        raise RequestError("a manual assignment must name every partition from 0 on, each once",
                           code=Code.INVALID_REPLICA_ASSIGNMENT)
    ordered = [placed[partition] for partition in range(len(placed))]
    assert len(ordered) == len(wanted.assignments), wanted
    return ordered

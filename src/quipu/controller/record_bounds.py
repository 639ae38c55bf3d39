"""The bounds of a record of another node: possible names, and numbers near those of the state.

A record is applied on every node and at every start.  One that no controller can have decided (a
topic with an impossible name, the greatest epoch that fits) must not get that far: the node that
receives it refuses the message, and stores nothing of it.

Invariants
    controller.B1  an epoch or a version is at most EPOCH_MAX, half of what fits, and EPOCH_JUMP_MAX
                   above the next one that the state would give, unless the state is still empty
    controller.B2  a topic's name has the length and the letters that every version has required; a
                   stricter rule would keep a node from a cluster that has older topics
    controller.B3  counts are within the limits of a request

Not here: whether a record fits the state exactly; `apply` asserts what it relies on.
"""

import re
from collections.abc import Iterable
from typing import Final

from quipu.controller.records import (
    BrokerRegistered,
    ChainChanged,
    DerivedChainChanged,
    NumbersUsed,
    PartitionDetached,
    PartitionRun,
    PartitionsAdded,
    PartitionsMoved,
    ProducerIdsReserved,
    Record,
    TopicCreated,
)
from quipu.controller.state import ClusterState
from quipu.model.bounds import (
    EPOCH_JUMP_MAX,
    EPOCH_MAX,
    PRODUCER_ID_JUMP_MAX,
    PRODUCER_ID_MAX,
)
from quipu.model.errors import MalformedBytes
from quipu.model.ids import ProducerId
from quipu.model.listeners import LISTENERS_MAX
from quipu.model.topics import PARTITION_COUNT_MAX

MEMBERS_MAX: Final = 1000
NAME_SIZE_MAX: Final = 249
_NAME: Final = re.compile(rf"[a-zA-Z0-9._-]{{1,{NAME_SIZE_MAX}}}")


def check_record(record: Record, state: ClusterState) -> None:
    """Raise `MalformedBytes` if no controller can have decided `record`."""
    match record:
        case TopicCreated():
            if _NAME.fullmatch(record.name) is None:  # controller.B2
                raise MalformedBytes(f"a topic called {record.name[:NAME_SIZE_MAX]!r}")
            _check_runs(record.runs, len(record.partitions), state)
        case PartitionsAdded():
            _check_runs(record.runs, len(record.partitions), state)
        case ChainChanged() | DerivedChainChanged() | PartitionDetached() | PartitionsMoved():
            _check_numbers(record.epoch, record.version, state)
            if not isinstance(record, PartitionsMoved) and len(record.members) > MEMBERS_MAX:
                raise MalformedBytes(f"a chain of {len(record.members)} nodes")
            if isinstance(record, DerivedChainChanged) and sorted(record.order) != sorted(
                    member.node_id for member in record.members):
                raise MalformedBytes(f"a chain of other nodes than {record.order[:10]}")
        case NumbersUsed():
            _check_numbers(record.next_epoch, record.next_version, state)
        case BrokerRegistered():
            _check_numbers(0, record.epoch, state)
            if record.node_id < 0:
                raise MalformedBytes(f"a broker with the number {record.node_id}")
            if len(record.listeners) > LISTENERS_MAX:
                raise MalformedBytes(f"a broker with {len(record.listeners)} listeners")
        case ProducerIdsReserved():
            _check_producer_id(record.next_producer_id, state)
        case _:
            pass  # no number in it is kept


def _check_numbers(epoch: int, version: int, state: ClusterState) -> None:
    """Raise `MalformedBytes` for an epoch or a version that is too high (controller.B1)."""
    is_empty = not state.brokers
    for number, next_number, what in (
            (epoch, state.next_epoch, "epoch"), (version, state.next_version, "version")):
        limit = EPOCH_MAX if is_empty else min(EPOCH_MAX, next_number + EPOCH_JUMP_MAX)
        if not -1 <= number <= limit:
            raise MalformedBytes(f"{what} {number} cannot be: the next one here is {next_number}")


def _check_producer_id(next_producer_id: ProducerId | int, state: ClusterState) -> None:
    limit = state.next_producer_id + PRODUCER_ID_JUMP_MAX if state.brokers else PRODUCER_ID_MAX
    if not 0 <= next_producer_id <= limit:
        raise MalformedBytes(f"producer id {next_producer_id} cannot be: the next one here is "
                             f"{state.next_producer_id}")


def _check_runs(runs: Iterable[PartitionRun], plain_count: int, state: ClusterState) -> None:
    """Raise `MalformedBytes` for counts that no request allows (controller.B3)."""
    count = plain_count
    for run in runs:
        _check_numbers(run.epoch, run.version, state)
        if run.count < 0:
            raise MalformedBytes(f"{run.count} partitions")
        count += run.count
    if count > 2 * PARTITION_COUNT_MAX:
        raise MalformedBytes(f"{count} partitions of one topic")

"""Which records about topics fit the state that they are applied to; the others are skipped.

Records are decided on the very state that they are applied to, so they fit.  But metadata outlives
the program that wrote it: an older version, or a faulty node, may have left a topic twice, one
without partitions, or a setting of a topic that never existed.  Such a record must not keep any
node from starting.  Every node skips the same ones, for all have the same state.

Not here: the other records about brokers and chains, without which nothing can be served; if one of
those does not fit, that is a bug, and an assertion (state.py).
"""

from typing import TYPE_CHECKING, assert_never

from quipu.controller.placement import ChainPlacement, DisklessPlacement, Placement
from quipu.controller.records import (
    ChainRemoved,
    ConfigChanged,
    PartitionDetached,
    PartitionRecord,
    PartitionsAdded,
    PartitionsMoved,
    PlacementKind,
    Record,
    TopicCreated,
    TopicDeleted,
    placement_kind,
)
from quipu.controller.resources import STORED, ResourceType
from quipu.model.errors import Code, ErrorKind, QuipuError
from quipu.model.ids import NO_NODE, ZERO_UUID

if TYPE_CHECKING:
    from quipu.controller.state import ClusterState
    from quipu.controller.topic_state import Topic


class UnfitRecord(QuipuError):
    """A record that does not fit the state that it meets."""

    kind = ErrorKind.INVALID
    code = Code.INVALID_REQUEST


def why_unfit(state: "ClusterState", record: Record) -> str | None:
    """Why `record` cannot be applied to `state`; None if it can."""
    match record:
        case TopicCreated():
            if record.name in state.topics:
                return f"there is a topic {record.name[:80]!r} already"
            if record.topic_id in state.topics_by_id or record.topic_id == ZERO_UUID:
                return f"topic id {record.topic_id} cannot be given to {record.name[:80]!r}"
            return _why_no_partitions(state, record)
        case TopicDeleted() | PartitionsAdded() | PartitionsMoved() | PartitionDetached():
            topic = state.topics_by_id.get(record.topic_id)
            if topic is None:
                return f"there is no topic with id {record.topic_id}"
            if isinstance(record, PartitionsAdded):
                return _why_no_partitions(state, record)
            if isinstance(record, PartitionsMoved):
                count = len(topic.partitions)
                if not all(0 <= index < count for index in record.partitions):
                    return f"topic {topic.name[:80]!r} has {count} partitions"
                return _why_not_moved(state, topic, record)
            if isinstance(record, PartitionDetached) and not (
                    0 <= record.partition < len(topic.partitions)
                    and isinstance(topic.partitions[record.partition].placement, ChainPlacement)):
                return f"topic {topic.name[:80]!r} has no partition {record.partition} on a chain"
        case ConfigChanged():
            if record.resource_type not in STORED:
                return f"resources of type {record.resource_type} have no settings"
            if (record.resource_type == ResourceType.TOPIC
                    and record.resource_name not in state.topics):
                return f"there is no topic {record.resource_name[:80]!r}"
        case ChainRemoved():
            if record.name not in state.chains or state.topics_on(record.name):
                return f"chain {record.name[:80]!r} cannot be removed"
        case _:
            pass
    return None


def _why_not_moved(state: "ClusterState", topic: "Topic", record: PartitionsMoved) -> str | None:
    kind = placement_kind(record)
    leaders = [NO_NODE, *record.replicas]  # NO_NODE: the one before
    for index in record.partitions:
        placement = topic.partitions[index].placement
        if isinstance(placement, DisklessPlacement) != (kind is PlacementKind.DISKLESS):
            if kind is not PlacementKind.DISKLESS or not _may_become_diskless(placement):
                return ("diskless partitions stay diskless, and of others only sealed ones "
                        "become it")  # controller.G2
            leaders = record.replicas
    match kind:
        case PlacementKind.CHAIN:
            return _why_no_chain(state, record.chain, record.moving_to)
        case PlacementKind.LEGACY:
            return "partitions can be moved to a chain only"
        case PlacementKind.DISKLESS:
            if not record.replicas or len(set(record.replicas)) != len(record.replicas):
                return f"a diskless partition on {record.replicas[:10]}"
            if record.leader not in leaders:
                return f"a diskless partition that {record.leader} leads, which is no replica"
            return None
        case _:
            assert_never(kind)


def _may_become_diskless(placement: Placement) -> bool:
    return (isinstance(placement, ChainPlacement) and placement.sealed
            and placement.own_chain is None)


def _why_no_partitions(
    state: "ClusterState", record: TopicCreated | PartitionsAdded
) -> str | None:
    if not record.partitions and not record.runs:
        return "a topic without partitions"
    if record.runs and len(record.partitions) != sum(
            run.count for run in record.runs if placement_kind(run) is not PlacementKind.CHAIN):
        return "partitions on no chain that are not said to be anywhere"
    for run in record.runs:
        if run.count < 1:
            return f"{run.count} partitions"
        kind = placement_kind(run)
        match kind:
            case PlacementKind.CHAIN:
                if why := _why_no_chain(state, run.chain, run.moving_to):
                    return why
            case PlacementKind.LEGACY | PlacementKind.DISKLESS:
                if run.chain:
                    return f"partitions of no chain's kind on chain {run.chain[:80]!r}"
            case _:
                assert_never(kind)
    return next(filter(None, map(_why_no_replicas, record.partitions)), None)


def _why_no_chain(state: "ClusterState", chain: str, moving_to: str | None) -> str | None:
    missing = [name for name in (chain, moving_to) if name is not None and name not in state.chains]
    return f"there is no chain {missing[0][:80]!r}" if missing else None


def _why_no_replicas(partition: PartitionRecord) -> str | None:
    replicas, isr = partition.replicas, partition.isr
    if (partition.leader not in isr or not set(isr) <= set(replicas)
            or len(set(replicas)) != len(replicas) or len(set(isr)) != len(isr)):
        return f"a partition on {replicas[:10]} that {partition.leader} leads"
    return None

"""How many replicas must be in sync for a write, while nodes fail, join and are moved to."""

from collections.abc import Sequence

import pytest

from quipu.broker.partitions.min_insync import why_too_few
from quipu.model.chains import MemberState, ReplicaMember, ReplicaSet
from quipu.model.ids import Epoch, NodeId, TopicPartition
from quipu.model.partition_log import ACKS_ALL

NAME = TopicPartition("t", 0)


def members(
    serving: Sequence[int], syncing: Sequence[int] = (), offline: Sequence[int] = (),
    arriving: Sequence[int] = (),
) -> ReplicaSet:
    """A replica set of these nodes, some of which the partition is being moved to."""
    states = ((serving, MemberState.SERVING), (syncing, MemberState.SYNCING),
              (offline, MemberState.OFFLINE))
    return ReplicaSet(
        epoch=Epoch(1), version=1, arriving=frozenset(map(NodeId, arriving)),
        members=tuple(ReplicaMember(NodeId(node), state) for nodes, state in states
                      for node in nodes))


@pytest.mark.parametrize(("now", "may_write"), [
    (members([1, 2, 3]), True),
    (members([1, 2], offline=[3]), True),
    (members([1, 2], syncing=[3]), True),
    (members([1], offline=[2, 3]), False),
    (members([1], syncing=[2, 3]), False),
    (members([1], offline=[2]), True),  # of two, one may fail
    (members([1]), True),
])
def test_all_but_one_must_be_in_sync_by_default(now: ReplicaSet, may_write: bool) -> None:
    """V21: any node of a chain may be killed, and what is acknowledged is on all others."""
    assert (why_too_few(NAME, None, now, now, ACKS_ALL) is None) == may_write
    assert why_too_few(NAME, None, now, now, 1) is None  # as in Kafka, for acks=all alone


@pytest.mark.parametrize("setting", [None, 0, 3])
def test_a_move_to_other_nodes_does_not_stop_writes(setting: int | None) -> None:
    """K6, V21: nodes that a partition is moved to count when the move is complete, also if a node
    fails meanwhile and a new epoch begins.
    """
    copying = members([1, 2, 3], syncing=[4, 5, 6], arriving=[4, 5, 6])
    assert why_too_few(NAME, setting, copying, copying, ACKS_ALL) is None

    failed = members([1, 2], syncing=[4, 5, 6], offline=[3], arriving=[4, 5, 6])
    assert (why_too_few(NAME, setting, failed, failed, ACKS_ALL) is None) == (setting is None)


def test_a_member_that_joins_does_not_stop_writes_of_a_chain_that_lacks_one() -> None:
    """V7, V21: a dead node is replaced by a new one; writes went on, and go on."""
    before = members([1, 2], offline=[3])
    extended = members([1, 2], syncing=[4], offline=[3])

    assert why_too_few(NAME, None, extended, before, ACKS_ALL) is None


def test_the_reason_says_what_is_there_and_what_is_needed() -> None:
    """K9: a producer's error names the setting to look at."""
    now = members([1], offline=[2, 3])

    assert why_too_few(NAME, None, now, now, ACKS_ALL) == (
        "t-0: 1 of 3 replicas is in sync, and writes need 2 (min.insync.replicas is not set)")
    assert why_too_few(NAME, 0, now, now, 1) == (
        "t-0: 1 of 3 replicas is in sync, and writes need 3 (min.insync.replicas is 0)")

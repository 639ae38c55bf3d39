"""The small pure parts: fences, shares, ages of objects, limits."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quipu.diskless.cleaning.limits import BadCleaningLimits, CleaningLimits
from quipu.diskless.cleaning.orphans import find_orphans, is_foreign
from quipu.diskless.cleaning.receipts import NUMBERS_MAX, portions
from quipu.diskless.cleaning.retention import is_due
from quipu.diskless.cleaning.shares import is_own, owner, pause_seconds
from quipu.diskless.control_plane.fences import Fence, fence_of, fences_of
from quipu.diskless.control_plane.interface import RetentionRule
from quipu.diskless.objects.names import ObjectName
from quipu.diskless.objects.receipts import Receipt
from quipu.diskless.values import LogBounds, LogKey
from quipu.model.ids import NodeId, Offset
from quipu.runtime.objects.store import NO_TIME, ObjectInfo

WRITER = UUID(int=7)
LOG = LogKey(UUID(int=1), 0)
names = st.builds(ObjectName, st.integers(0, 2**31 - 1).map(NodeId), st.uuids(),
                  st.integers(0, 2**63 - 1))


def name(sequence: int) -> ObjectName:
    return ObjectName(NodeId(3), WRITER, sequence)


@given(names, st.integers(0, 2**63 - 1))
def test_a_fence_refuses_what_its_writer_wrote_before(found: ObjectName, later: int) -> None:
    """D7: fences of one writer are ordered by its sequence, whatever prefix the keys have."""
    writer, sequence = fence_of(found.key)
    assert sequence == found.sequence
    assert fence_of(found._replace(sequence=later).key) == Fence(writer, later)
    assert writer == f"{found.node_id}-{found.writer.hex}"


@given(st.text(min_size=1))
def test_any_other_key_is_fenced_alone(key: str) -> None:
    """D7: a key that no writer makes has a fence that no other key shares."""
    found = fence_of(key)
    if found.writer.startswith("="):
        assert found == Fence(f"={key}", 0)
    assert fence_of(f"{key}x") != found


def test_many_keys_need_one_fence_for_each_writer() -> None:
    """D7: fences take one row for each writer, not one for each object."""
    other = ObjectName(NodeId(4), WRITER, 9)
    assert fences_of([name(5).key, name(2).key, other.key]) == [
        Fence(f"3-{WRITER.hex}", 5), Fence(f"4-{WRITER.hex}", 9)]


@given(st.sets(st.integers(0, 50).map(NodeId), min_size=1), st.integers(0, 1000), st.uuids())
def test_each_log_has_one_owner_which_stays_while_it_lives(
    nodes: set[NodeId], partition: int, topic_id: UUID
) -> None:
    """D7: the nodes agree who removes old records; a node that goes moves only its own logs."""
    log = LogKey(topic_id, partition)
    found = owner(log, sorted(nodes))
    assert [node for node in nodes if is_own(log, node, list(nodes))] == [found]
    for gone in nodes - {found}:
        assert owner(log, sorted(nodes - {gone})) == found


def test_logs_are_spread_over_the_nodes() -> None:
    """D7: no node has much more than its share."""
    nodes = [NodeId(number) for number in range(3)]
    owners = [owner(LogKey(UUID(int=topic), partition), nodes)
              for topic in range(100) for partition in range(10)]
    assert all(250 < owners.count(node) < 420 for node in nodes)


def test_a_node_that_others_do_not_see_still_owns_its_share() -> None:
    """D7: a node counts itself."""
    assert is_own(LOG, NodeId(1), [])


def test_more_nodes_wait_longer_each() -> None:
    """D7: work that any node may do is not done more often by more nodes."""
    assert pause_seconds(1000, 1, 0.5) == 1.0
    assert pause_seconds(1000, 4, 0.5) == 4.0
    assert pause_seconds(1000, 0, 0.0) == 0.75


def info(key: str, modified_ms: int) -> ObjectInfo:
    return ObjectInfo(key, 10, "v", modified_ms)


def test_an_orphan_is_unknown_old_and_has_the_name_of_a_writer() -> None:
    """D7: what is known, young, of unknown age, or foreign is no orphan."""
    objects = [info(name(0).key, 100), info(name(1).key, 100), info(name(2).key, 951),
               info(name(3).key, NO_TIME), info("objects/readme", 100),
               info(name(4).receipts_key, 100)]
    assert find_orphans(objects, {name(0).key}, now_ms=1000, grace_ms=50) == [name(1).key]


@pytest.mark.parametrize("key", [
    "objects/x", "objects/00/a-b-c", "receipts/00/x", name(1).receipts_key,
    name(1).key.replace("objects/", "objects/x/"), f"{name(1).key}0", name(1).key.upper()])
def test_keys_that_no_writer_makes_are_foreign(key: str) -> None:
    """D7: such an object is never deleted."""
    assert is_foreign(key)
    assert not is_foreign(name(1).key)


@pytest.mark.parametrize(("rule", "bounds", "due"), [
    ((1000, -1), (0, 0, 5, 100), True),
    ((-1, 50), (0, 0, 5, 100), True),
    ((-1, 100), (0, 0, 5, 100), False),
    ((-1, -1), (0, 0, 5, 100), False),
    ((0, 0), (5, 5, 5, 0), False),
])
def test_only_logs_with_something_to_remove_are_asked_about(
    rule: tuple[int, int], bounds: tuple[int, int, int, int], *, due: bool
) -> None:
    """D7: an empty log, or one below its limit of bytes, costs no more than a look."""
    found = LogBounds(Offset(bounds[0]), Offset(bounds[1]), Offset(bounds[2]), bounds[3])
    assert is_due(RetentionRule(LOG, *rule), found) is due
    assert not is_due(RetentionRule(LOG, *rule), None)


def test_receipts_are_written_in_bounded_portions() -> None:
    """D37: however many receipts stay, one object has a bounded number of them."""
    receipts = [Receipt(name(index), (0,) * 200_000) for index in range(5)]
    found = portions(receipts)
    assert [each for portion in found for each in portion] == receipts
    assert all(sum(len(each.offsets) for each in portion) <= NUMBERS_MAX for portion in found)
    assert portions([]) == [[]]


@pytest.mark.parametrize(("limits", "said"), [
    (CleaningLimits(object_grace_ms=9_999, coordinates_ms=5_000), "diskless.object.grace.ms"),
    (CleaningLimits(orphan_grace_ms=1000, give_up_ms=1000), "diskless.orphan.grace.ms"),
    (CleaningLimits(rewrite_live_share=1.0), "diskless.rewrite.live.percent"),
    (CleaningLimits(rewrite_object_bytes=1 << 30), "diskless.rewrite.object.bytes"),
    (CleaningLimits(rewrite_small_bytes=30 << 20), "diskless.rewrite.small.bytes"),
])
def test_settings_that_contradict_each_other_are_refused(
    limits: CleaningLimits, said: str
) -> None:
    """D7: the grace period is longer than readers and writers take, or the node does not start.

    Invariant: diskless.cleaning.L1.
    """
    with pytest.raises(BadCleaningLimits, match=said):
        limits.check()
    CleaningLimits().check()

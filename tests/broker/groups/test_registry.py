"""All groups and offsets: when offsets go, and that a snapshot says everything."""

from dataclasses import dataclass
from uuid import UUID

import pytest

from quipu.broker.groups.events import GroupProtocol, GroupSnapshot, MemberSnapshot, MonotonicMs
from quipu.broker.groups.limits import GroupLimits
from quipu.broker.groups.records import decode_record, encode_record, record_of
from quipu.broker.groups.registry import CommittedOffset, GroupEntry, GroupRegistry
from quipu.broker.groups.restore import restore
from quipu.model.ids import TimestampMs
from tests.broker.groups.brokers import a_usage, kept
from tests.broker.groups.conversation import subscription

T, U, GONE = UUID(int=1), UUID(int=2), UUID(int=3)
NAMES = {T: "t", U: "u"}
NOW = MonotonicMs(0)


def snapshot(state: str, protocol_type: str | None, metadata: bytes = b"") -> GroupSnapshot:
    member = MemberSnapshot("m", None, "c", "/h", 10, 20, (GroupProtocol("range", metadata),), b"")
    has_members = state != "Empty"
    return GroupSnapshot(
        "g", state, 1, protocol_type, "range" if has_members else None,
        "m" if has_members else None, (member,) if has_members else ())


@dataclass(frozen=True)
class Case:
    why: str
    group: GroupSnapshot
    now_ms: int
    goes: set[UUID]


READS_T = subscription(["t"])
# Committed at 100, the group is empty since 500; offsets are kept for 1000.
CASES = [
    Case("an empty group keeps its offsets for a while",
         snapshot("Empty", "consumer"), 1499, set()),
    Case("counted from when the last member left",
         snapshot("Empty", "consumer"), 1500, {T, U, GONE}),
    Case("from outside: counted from the commit", snapshot("Empty", None), 1100, {T, U, GONE}),
    Case("from outside: not before", snapshot("Empty", None), 1099, set()),
    Case("what members read stays", snapshot("Stable", "consumer", READS_T), 9999, {U, GONE}),
    Case("what they may read stays", snapshot("Stable", "consumer", b"?"), 9999, set()),
    Case("others than consumers keep all", snapshot("Stable", "connect", READS_T), 9999, set()),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.why)
def test_offsets_expire(case: Case) -> None:
    """K3: offsets.retention.minutes, counted as Kafka counts."""
    group = restore(case.group, GroupLimits(), NOW)
    entry = GroupEntry(group, TimestampMs(500))
    for topic in (T, U, GONE):
        entry.offsets[topic, 0] = CommittedOffset(1, -1, "", TimestampMs(100))

    assert {key[0] for key in entry.expired(case.now_ms, 1000, NAMES.get)} == case.goes


def test_a_commit_may_say_itself_how_long_it_is_kept() -> None:
    """K3: the retention time of OffsetCommit v2-4."""
    entry = GroupEntry(restore(snapshot("Empty", None), GroupLimits(), NOW), TimestampMs(0))
    entry.offsets[T, 0] = CommittedOffset(1, -1, "", TimestampMs(100), TimestampMs(200))

    assert entry.expired(199, 1000, NAMES.get) == []
    assert entry.expired(200, 1000, NAMES.get) == [(T, 0)]


def test_a_snapshot_builds_the_same_registry() -> None:
    """T7: groups with and without members, and offsets without a group."""
    # Shows broker.groups.E1, broker.groups.R3.
    registry = GroupRegistry(a_usage())
    registry.apply(record_of(snapshot("Stable", "consumer", READS_T), 7), NOW)
    registry.apply(record_of(snapshot("Empty", "consumer")._replace(group_id="e"), 8), NOW)
    simple = registry.create("simple", TimestampMs(9))
    assert simple is not None
    for index in range(3):
        simple.offsets[T, index] = CommittedOffset(index, 4, "m", TimestampMs(5), TimestampMs(6))
    again = GroupRegistry(a_usage())
    for record in registry.records():
        again.apply(decode_record(encode_record(record)), NOW)

    assert kept(again) == kept(registry)
    assert again.entries["e"].empty_since_ms == 8


def test_a_deleted_topic_takes_its_offsets_along() -> None:
    """K3: in every group, and no other topic's."""
    registry = GroupRegistry(a_usage())
    for name in ("a", "b"):
        entry = registry.create(name, TimestampMs(0))
        assert entry is not None
        entry.offsets = {(T, 0): CommittedOffset(1, -1, "", TimestampMs(0)),
                         (U, 0): CommittedOffset(2, -1, "", TimestampMs(0))}
    assert list(registry.forget_topic(T)) == []  # few groups: one step

    assert [list(entry.offsets) for entry in registry.entries.values()] == [[(U, 0)], [(U, 0)]]

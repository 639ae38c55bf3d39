"""All groups and offsets: when offsets go, and that a snapshot says everything."""

from dataclasses import dataclass
from uuid import UUID

import pytest

from quipu.broker.groups.events import GroupProtocol, GroupSnapshot, MemberSnapshot, MonotonicMs
from quipu.broker.groups.kafka_records import CommittedOffset
from quipu.broker.groups.limits import GroupLimits
from quipu.broker.groups.records import record_of
from quipu.broker.groups.registry import GroupEntry, GroupRegistry
from quipu.broker.groups.restore import restore
from quipu.model.ids import TimestampMs
from tests.broker.groups.brokers import a_usage, kept, known
from tests.broker.groups.conversation import subscription

T, U, GONE = "t", "u", "gone"
ID = UUID(int=1)
TOPICS = known(t=ID, u=UUID(int=2))
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
    goes: set[str]


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
        entry.offsets[topic, 0] = CommittedOffset(ID, 1, -1, "", TimestampMs(100))

    assert {key[0] for key in entry.expired(case.now_ms, 1000)} == case.goes


def test_a_commit_may_say_itself_how_long_it_is_kept() -> None:
    """K3: the retention time of OffsetCommit v2-4."""
    entry = GroupEntry(restore(snapshot("Empty", None), GroupLimits(), NOW), TimestampMs(0))
    entry.offsets[T, 0] = CommittedOffset(ID, 1, -1, "", TimestampMs(100), TimestampMs(200))

    assert entry.expired(199, 1000) == []
    assert entry.expired(200, 1000) == [(T, 0)]


def test_a_snapshot_builds_the_same_registry() -> None:
    """T7: groups with and without members, and offsets without a group."""
    # Shows broker.groups.E1, broker.groups.R3.
    registry = GroupRegistry(a_usage())
    registry.apply_command(record_of(snapshot("Stable", "consumer", READS_T), 7), NOW, TOPICS)
    empty = snapshot("Empty", "consumer")._replace(group_id="e")
    registry.apply_command(record_of(empty, 8), NOW, TOPICS)
    simple = registry.create("simple", TimestampMs(9))
    assert simple is not None
    for index in range(3):
        simple.offsets[T, index] = CommittedOffset(
            ID, index, 4, "m", TimestampMs(5), TimestampMs(6))
    again = GroupRegistry(a_usage())
    for record in registry.records():
        again.apply(record, NOW, TOPICS)

    assert kept(again) == kept(registry)
    assert again.entries["e"].empty_since_ms == 8


def test_an_offset_of_another_topic_of_the_same_name_is_void() -> None:
    """K3: a topic that was deleted, or deleted and created again, has no offsets."""
    # Shows broker.groups.E4.
    registry = GroupRegistry(a_usage())
    entry = registry.create("g", TimestampMs(0))
    assert entry is not None
    for name, topic_id in ((T, ID), (U, ID), (GONE, ID)):
        entry.offsets[name, 0] = CommittedOffset(topic_id, 1, -1, "", TimestampMs(0))

    assert entry.void(TOPICS) == [(U, 0), (GONE, 0)]

"""What groups may hold: counted truly, refused clearly, and free again when it goes."""

import asyncio
import dataclasses
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.broker.groups.events import (
    GroupProtocol,
    Join,
    MemberDisconnected,
    MonotonicMs,
    Sync,
    Ticket,
)
from quipu.broker.groups.group import Group
from quipu.broker.groups.kafka_records import CommittedOffset
from quipu.broker.groups.limits import (
    GROUP_MAX_BYTES,
    GROUP_MAX_OFFSETS,
    GROUP_MAX_SIZE,
    GROUP_MAX_TOTAL_BYTES,
    OFFSETS_MAX_BYTES,
    OFFSETS_MAX_COUNT,
    PROTOCOL_COUNT_MAX,
    GroupLimits,
    offsets_size,
)
from quipu.broker.groups.members import member_size
from quipu.broker.groups.registry import GroupRegistry
from quipu.broker.groups.states import State
from quipu.model.errors import Code
from quipu.model.ids import TimestampMs
from tests.broker.groups.brokers import (
    SETTINGS,
    Client,
    a_group_broker,
    a_usage,
    begun,
    kept,
    known,
)

NOW = MonotonicMs(0)
TOPIC_ID = UUID(int=7)


class Members:
    """A group, and members that come and go by number."""

    def __init__(self, **limits: Any) -> None:
        self.refused: list[str] = []
        self.group = Group("g", GroupLimits(
            refused=lambda limit, group_id: self.refused.append(limit), **limits))
        self._tickets = iter(range(1, 1_000_000))

    def join(self, number: int, *protocols: GroupProtocol, instance: str | None = None) -> Any:
        ticket = Ticket(next(self._tickets))
        effects = self.group.handle(Join(
            ticket, "", f"m{number}", instance, "client", "/h", 10_000, 60_000, "consumer",
            protocols or (GroupProtocol("range", b""),), needs_known_id=False), NOW)
        return ticket, [effect.result.code for effect in effects  # type: ignore[union-attr]
                        if getattr(effect, "ticket", None) == ticket]


def test_what_weighs_nothing_on_the_wire_is_counted() -> None:
    """K8: a protocol without a name costs memory all the same."""
    members = Members(member_size_max=20_000)
    _, codes = members.join(1, *[GroupProtocol("", b"")] * 50)

    assert codes == [Code.INVALID_REQUEST]
    assert members.refused == [GROUP_MAX_BYTES]
    assert members.group.members.size == 0


def test_protocols_are_bounded_in_number() -> None:
    members = Members()
    _, codes = members.join(1, *[GroupProtocol("", b"")] * (PROTOCOL_COUNT_MAX + 1))
    assert codes == [Code.INVALID_REQUEST]


def test_a_group_has_so_many_members_of_such_a_size() -> None:
    """K8: each limit is named."""
    members = Members(member_count_max=2, group_size_max=16_384)
    members.join(1)
    members.join(2, GroupProtocol("range", b"x" * 20_000))
    assert members.refused == [GROUP_MAX_BYTES]
    members.join(2)
    _, codes = members.join(3)
    assert codes == [Code.GROUP_MAX_SIZE_REACHED]
    assert members.refused[-1] == GROUP_MAX_SIZE


def test_assignments_count_too_and_are_given_back() -> None:
    """K8: the leader's assignments are bounded by the same limit."""
    members = Members(group_size_max=16_384)
    members.join(1)
    size = members.group.members.size
    sync = Sync(Ticket(0), "m1", None, 1, None, None, (("m1", b"x" * 5_000),))
    members.group.handle(sync, NOW)
    assert members.group.members.size == size + 5_000

    members.join(2)  # a rebalance: nobody has anything for now
    members.group.handle(Join(
        Ticket(10), "m1", "", None, "client", "/h", 10_000, 60_000, "consumer",
        (GroupProtocol("range", b""),)), NOW)
    assert members.group.members.assignments_size == 0
    large = sync._replace(generation=2, assignments=(("m1", b"x" * 16_000),))
    (reply,) = members.group.handle(large, NOW)
    assert reply.result.code == Code.GROUP_MAX_SIZE_REACHED  # type: ignore[union-attr]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(
    st.sampled_from(["join", "static", "rejoin", "gone", "sync"]), st.integers(0, 5),
    st.integers(0, 3000)), max_size=40))
def test_what_is_counted_is_what_is_there(steps: list[tuple[str, int, int]]) -> None:
    """K8: however members join, change, disconnect or leave, the sum is that of the members."""
    # Shows broker.groups.E2.
    members = Members(member_count_max=5, group_size_max=30_000)
    group = members.group
    tickets: list[Ticket] = []
    for step, (what, number, size) in enumerate(steps):
        protocol = GroupProtocol("range", b"x" * size)
        ids = [member.member_id for member in group.members]
        if what in ("join", "static"):
            instance = f"i{number}" if what == "static" else None
            tickets.append(members.join(100 * step + number, protocol, instance=instance)[0])
        elif what == "gone" and tickets:
            group.handle(MemberDisconnected(tickets[number % len(tickets)]), NOW)
        elif what == "rejoin" and ids:
            member = group.members.find(ids[number % len(ids)])
            assert member is not None
            group.handle(Join(
                Ticket(50_000 + step), member.member_id, "", member.instance_id, "c", "/h",
                10_000, 60_000, "consumer", (protocol,)), NOW)
        elif what == "sync" and group.members.leader is not None:
            leader = group.members.find(group.members.leader)
            assert leader is not None
            group.handle(Sync(
                Ticket(90_000 + step), leader.member_id, leader.instance_id, group.generation,
                None, None, tuple((each, b"y" * size) for each in ids)), NOW)
        there = list(group.members)
        assigned = sum(len(member.assignment) for member in there)
        assert group.members.assignments_size == assigned
        assert group.members.size == sum(map(member_size, there)) + assigned
        assert group.size <= 30_000 + 1000


def test_a_newcomer_that_hangs_up_is_forgotten_and_others_go_on() -> None:
    """K3: the rebalance does not wait for one who has gone."""
    members = Members()
    members.join(1)
    ticket, _ = members.join(2)
    assert members.group.state is State.PREPARING_REBALANCE
    rejoin = Join(Ticket(9), "m1", "", None, "client", "/h", 10_000, 60_000, "consumer",
                  (GroupProtocol("range", b""),))

    members.group.handle(MemberDisconnected(ticket), NOW)
    assert "m2" not in members.group.members
    effects = members.group.handle(rejoin, NOW)

    assert any(getattr(effect, "ticket", None) == 9 for effect in effects)
    assert members.group.state is State.COMPLETING_REBALANCE


def test_a_member_that_hangs_up_has_its_session_to_come_back() -> None:
    """K3: it keeps its place; only when its time is over does it lose it."""
    members = Members()
    members.join(1)
    members.join(2)
    rejoin = Join(Ticket(9), "m1", "", None, "client", "/h", 10_000, 60_000, "consumer",
                  (GroupProtocol("range", b"changed"),))
    members.group.handle(rejoin, NOW)  # generation 2 with both
    members.join(3)
    members.group.handle(rejoin._replace(ticket=Ticket(10)), NOW)
    members.group.handle(MemberDisconnected(Ticket(10)), NOW)

    member = members.group.members.find("m1")
    assert member is not None
    assert member.can_expire
    assert member.deadline == 10_000


def test_all_groups_together_are_bounded_and_a_share_is_always_there() -> None:
    """K8: B2; a crowd of heavy groups does not keep a small one from its first member."""
    # Shows broker.groups.B1, broker.groups.B2.
    usage = a_usage(dataclasses.replace(
        SETTINGS, group_max_total_bytes=1 << 20, group_max_count=100))
    registry = GroupRegistry(usage)
    refused = 0
    for number in range(50):
        entry = registry.create(f"g{number}", TimestampMs(0))
        assert entry is not None
        entry.group.handle(Join(
            Ticket(1), "", "m", None, "c", "/h", 1, 1, "consumer",
            (GroupProtocol("range", b"x" * 50_000),), needs_known_id=False), NOW)
        refused += not len(entry.group.members)
        registry.count(entry)
    assert refused > 25
    assert usage._stats.refusals[GROUP_MAX_TOTAL_BYTES] == refused
    assert usage._stats.group_bytes <= 2 << 20

    small = registry.create("small", TimestampMs(0))
    assert small is not None
    small.group.handle(Join(
        Ticket(1), "", "m", None, "c", "/h", 1, 1, "consumer",
        (GroupProtocol("range", b"x" * 100),),
        needs_known_id=False), NOW)
    assert len(small.group.members) == 1

    registry.close()
    assert (usage._stats.group_bytes, usage.group_count) == (0, 0)


def committed(metadata: str = "") -> CommittedOffset:
    return CommittedOffset(TOPIC_ID, 1, -1, metadata, TimestampMs(0))


@pytest.mark.parametrize(("limit", "value", "count", "metadata"), [
    (GROUP_MAX_OFFSETS, 10, 11, ""),
    (OFFSETS_MAX_COUNT, 10, 11, ""),
    (OFFSETS_MAX_BYTES, 1 << 20, 400, "m" * 4000),
])
def test_offsets_are_bounded(limit: str, value: int, count: int, metadata: str) -> None:
    """K8: by number, of one group and of all, and by what they take up."""
    # Shows broker.groups.B1.
    usage = a_usage(dataclasses.replace(SETTINGS, **{limit.replace(".", "_"): value}))
    wanted = {("t", index): committed(metadata) for index in range(count)}

    assert usage.why_no_room({}, wanted) == limit
    fewer = dict(list(wanted.items())[: count // 2])
    assert usage.why_no_room({}, fewer) == ""
    usage.reserve(count // 2 + 1, offsets_size(fewer.values()) + 5000)
    # broker.groups.B3: those are on their way to the log.
    assert limit == GROUP_MAX_OFFSETS or usage.why_no_room({}, fewer) == limit
    assert usage.why_no_room(fewer, {key: committed("") for key in fewer}) == ""  # no more


def test_offsets_that_go_are_no_longer_counted() -> None:
    """K8: by deletion, with their topic, with their group, and when another node leads."""
    usage = a_usage()
    registry = GroupRegistry(usage)
    stats = usage._stats
    for name in ("a", "b"):
        entry = registry.create(name, TimestampMs(0))
        assert entry is not None
        registry.keep_offsets(entry, {("tu"[index % 2], index): committed("abc")
                                      for index in range(10)})
        registry.keep_offsets(entry, {("t", 0): committed("abcdef")})
    assert stats.offsets == 20
    everything = [each for e in registry.entries.values() for each in e.offsets.values()]
    assert stats.offset_bytes == offsets_size(everything)

    for entry in registry.entries.values():
        registry.drop_offsets(entry, entry.void(known(t=TOPIC_ID)))
    assert stats.offsets == 10
    registry.drop_offsets(registry.entries["a"], [("t", 0), ("t", 0)])
    assert stats.offsets == 9
    registry.forget(registry.entries["b"])
    assert stats.offsets == 4
    registry.close()
    assert (stats.offsets, stats.offset_bytes) == (0, 0)


def test_a_snapshot_is_made_in_steps_while_groups_come_and_go() -> None:
    """T7, K8: what is taken away between two records is not in the way."""
    registry = GroupRegistry(a_usage())
    for name in ("a", "b", "c"):
        entry = registry.create(name, TimestampMs(0))
        assert entry is not None
        registry.keep_offsets(entry, {
            ("t", index): committed() for index in range(5)})
    again = GroupRegistry(a_usage())
    records = registry.records()
    for _ in range(2):
        again.apply(next(records), NOW, known(t=TOPIC_ID))
    registry.forget(registry.entries["b"])
    registry.create("d", TimestampMs(0))
    for record in records:
        again.apply(record, NOW, known(t=TOPIC_ID))

    del registry.entries["d"]
    assert kept(again) == kept(registry)


def test_who_hangs_up_leaves_nothing_parked() -> None:
    """K8: the request that waited is forgotten, and its group can go."""
    async def run() -> None:
        broker = await a_group_broker()
        first, second = Client(broker, "g"), Client(broker, "g")
        await first.enter()
        joining = await begun(second.join())
        assert len(broker.shard._parked) == 1
        joining.cancel()
        await asyncio.wait([joining])
        assert not broker.shard._parked
        assert len(broker.shard.registry.entries["g"].group.members) == 1
        await broker.groups.stop()

    asyncio.run(run())

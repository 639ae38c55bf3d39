"""The driver of groups: durable before a response, every request gets one, also after a crash."""

import asyncio
import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.broker.coordinators.record_log import KeyedRecord
from quipu.broker.groups import registry
from quipu.broker.groups.states import State
from quipu.broker.handlers import k11_join_group
from quipu.model.errors import Code, QuipuError
from quipu.model.ids import ZERO_UUID
from quipu.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tests.broker.groups.brokers import (
    SETTINGS,
    Client,
    GroupBroker,
    GroupMemoryLog,
    a_group_broker,
    a_usage,
    begun,
    kept,
    settle,
    two_members,
)


class SlowLog(GroupMemoryLog):
    """A log whose disk takes its time, or fails."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.broken = False
        self.before_append = self.wait

    async def wait(self) -> None:
        await self.gate.wait()
        if self.broken:
            raise QuipuError("the disk is full")


def test_a_stable_group_goes_on_after_a_crash() -> None:
    """K3, T7: members keep their generation and assignment; nobody has to join anew."""
    async def run() -> None:
        broker = await a_group_broker()
        first, second = await two_members(broker)
        assert await first.commit(42) == Code.NONE
        before = kept(broker.shard.registry)
        broker.clock.advance_ms(3_600_000)  # the node is away for longer than any session
        await broker.restart()

        assert kept(broker.shard.registry) == before
        assert [await first.heartbeat(), await second.heartbeat()] == [Code.NONE, Code.NONE]
        assert (await second.sync()).assignment == second.member_id.encode()
        assert await first.committed() == 42
        await broker.pass_ms(9_999)
        assert await first.heartbeat() == Code.NONE
        await broker.pass_ms(1)
        assert await first.heartbeat() == Code.REBALANCE_IN_PROGRESS  # the second was silent
        await broker.groups.stop()

    asyncio.run(run())


def test_a_crash_during_a_rebalance_loses_no_generation() -> None:
    """K3: a generation that a member got is never given to another set of members."""
    async def run() -> None:
        broker = await a_group_broker()
        first, second = await two_members(broker)
        joining = await begun(first.join())  # the leader asks for a rebalance
        assert await second.join() == Code.NONE
        assert await joining == Code.NONE
        generation = first.generation
        await broker.restart()

        syncing = await begun(second.sync())
        assert (await first.sync()).error_code == Code.NONE
        assert (await syncing).error_code == Code.NONE
        assert broker.groups.all()[0].generation == generation
        await broker.groups.stop()

    asyncio.run(run())


def test_a_commit_is_answered_when_it_is_durable() -> None:
    """K3: neither the response nor the offset is visible while the disk works."""
    # Shows broker.groups.E3.
    async def run() -> None:
        log = SlowLog()
        broker = await a_group_broker(log=log)
        client = Client(broker)
        assert await client.commit(1) == Code.NONE
        log.gate.clear()
        committing = await begun(client.commit(2))

        assert not committing.done()
        assert await client.committed() == 1
        log.gate.set()
        assert await committing == Code.NONE
        assert await client.committed() == 2

    asyncio.run(run())


def test_commits_that_come_together_are_written_together() -> None:
    """Many consumers commit at a time: one write, in order, and the last one holds."""
    async def run() -> None:
        log = SlowLog()
        broker = await a_group_broker(log=log)
        client = Client(broker)
        log.gate.clear()
        committing = [await begun(client.commit(offset)) for offset in range(50)]
        writes = 0

        async def counted() -> None:
            nonlocal writes
            writes += 1

        log.before_append = counted
        log.gate.set()
        assert await asyncio.gather(*committing) == [Code.NONE] * 50
        assert writes == 1  # the first was under way on its own
        assert await client.committed() == 49

    asyncio.run(run())


def test_what_the_disk_refuses_is_not_acknowledged() -> None:
    """K3: commits, joins and syncs fail with a code that clients retry; the group rebalances."""
    # Shows broker.groups.D1.
    async def run() -> None:
        log = SlowLog()
        broker = await a_group_broker(log=log)
        client, other = Client(broker), Client(broker, "other")
        await client.enter()
        assert await other.join() == Code.NONE
        log.broken = True

        assert await client.commit(7) == Code.COORDINATOR_NOT_AVAILABLE
        assert await client.committed() == -1
        assert (await other.sync()).error_code == Code.COORDINATOR_NOT_AVAILABLE
        assert await other.heartbeat() == Code.REBALANCE_IN_PROGRESS
        assert await client.join() == Code.COORDINATOR_NOT_AVAILABLE
        log.broken = False
        assert await client.join() == Code.NONE
        assert (await client.sync()).error_code == Code.NONE
        await broker.groups.stop()

    asyncio.run(run())


def test_whoever_is_parked_is_sent_away_when_the_node_stops() -> None:
    """K10: joins and syncs that wait get a code that makes clients look up the coordinator."""
    # Shows broker.groups.D2.
    async def run() -> None:
        broker = await a_group_broker()
        first, second = await two_members(broker)
        third = Client(broker)
        joining = await begun(third.join())
        fourth, fifth = Client(broker, "h"), Client(broker, "h")
        await fourth.enter()
        waiting = await begun(fifth.join())
        assert await fourth.join() == Code.NONE
        assert await waiting == Code.NONE
        syncing = await begun(fifth.sync())
        await broker.groups.stop()

        assert await joining == Code.COORDINATOR_NOT_AVAILABLE
        assert (await syncing).error_code == Code.COORDINATOR_NOT_AVAILABLE
        assert await first.heartbeat() == Code.COORDINATOR_NOT_AVAILABLE
        assert await second.commit(1) == Code.COORDINATOR_NOT_AVAILABLE
        assert not broker.shard._timers

    asyncio.run(run())


def test_a_real_timer_ends_a_session() -> None:
    """K3: nobody has to ask for time to pass."""
    # Shows broker.groups.D3.
    async def run() -> None:
        broker = await a_group_broker()
        client = Client(broker)
        await client.enter()
        broker.clock.advance_ms(9_990)
        broker.shard._arm(broker.shard.registry.entries["g"])
        broker.clock.advance_ms(10)
        await asyncio.sleep(0.05)

        assert broker.groups.all()[0].state is State.EMPTY
        assert await client.heartbeat() == Code.UNKNOWN_MEMBER_ID
        await broker.groups.stop()

    asyncio.run(run())


def test_a_group_that_nobody_came_to_is_forgotten() -> None:
    """K8: asking for an id and never coming back leaves nothing behind."""
    async def run() -> None:
        broker = await a_group_broker()
        request = JoinGroupRequest(
            group_id="g", session_timeout=10_000, rebalance_timeout=1, protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range")])
        response = await broker.ask(k11_join_group, request)
        assert response.error_code == Code.MEMBER_ID_REQUIRED
        assert len(broker.groups.all()) == 1
        await broker.pass_ms(10_000)

        assert broker.groups.all() == []
        request.protocols = []
        response = await broker.ask(k11_join_group, request)
        assert response.error_code == Code.INCONSISTENT_GROUP_PROTOCOL
        assert broker.groups.all() == []

    asyncio.run(run())


def test_groups_and_offsets_have_a_limit() -> None:
    """K8: whatever clients make up, a node keeps so many groups and offsets, and says so."""
    limits = dataclasses.replace(SETTINGS, group_max_count=4, offsets_max_count=3)

    async def run() -> None:
        broker = await a_group_broker("t", "u", settings=limits)
        one, two, three = (Client(broker, name) for name in ("one", "two", "three"))
        await one.enter()
        assert await two.commit(5) == Code.NONE
        assert await three.join() == Code.POLICY_VIOLATION  # its address has made half of them
        assert await three.commit(5) == Code.POLICY_VIOLATION
        assert await two.commit(5, partition=1) == Code.NONE
        assert await two.commit(5, topic="u") == Code.NONE
        assert await two.commit(5, topic="u", partition=1) == Code.INVALID_COMMIT_OFFSET_SIZE
        assert await two.commit(6) == Code.NONE
        await broker.groups.stop()

    asyncio.run(run())


def test_the_last_record_of_each_key_builds_the_state() -> None:
    """T7, K3: whatever was acknowledged is in the log, and compaction takes nothing of it away."""
    # Shows broker.groups.K3, broker.groups.R3.
    async def run() -> None:
        log = GroupMemoryLog()
        broker = await a_group_broker(log=log)
        client, _ = await two_members(broker)
        for offset in range(20):
            assert await client.commit(offset, partition=offset % 2) == Code.NONE
            compacted = {record.key: record for record in log.commands}
            for records in (log.commands, compacted.values(), 2 * log.commands):
                replayed = registry.GroupRegistry(a_usage())
                for record in records:
                    replayed.apply(record, broker.shard.now(), broker.cluster.state)
                assert kept(replayed) == kept(broker.shard.registry)
        assert len(compacted) == 4  # two offsets, and the group for Kafka's tools and for us
        await broker.groups.stop()

    asyncio.run(run())


def test_a_log_of_a_newer_program_keeps_groups_from_being_served() -> None:
    """K8: nothing is guessed; everything else of the node works, and clients may retry."""
    async def run() -> None:
        log = GroupMemoryLog()
        broker = await a_group_broker(log=log)
        assert await Client(broker).commit(1) == Code.NONE
        log.commands.append(KeyedRecord(b"\x00\xee\x00\x01g", b""))
        await broker.restart()

        assert await Client(broker).commit(2) == Code.COORDINATOR_NOT_AVAILABLE
        assert await Client(broker).join() == Code.COORDINATOR_NOT_AVAILABLE

    asyncio.run(run())


STEPS = st.lists(st.tuples(
    st.sampled_from(["join", "sync", "heartbeat", "commit", "leave", "wait", "topic", "expire"]),
    st.integers(0, 3)), max_size=40)


@given(steps=STEPS)
@settings(max_examples=60)
def test_replay_gives_the_state_that_was(steps: list[tuple[str, int]]) -> None:
    """T7, K3: after any history, a crash leaves every durable fact as it was."""
    asyncio.run(replayed(steps))


async def replayed(steps: list[tuple[str, int]]) -> None:
    broker = await a_group_broker("t", "u")
    broker.shard.core._writer._snapshot_size = 1_000
    clients = [Client(broker, f"g{index % 2}", topics=("tu"[index % 2],)) for index in range(4)]
    tasks = [await begun(step(broker, clients[index], what)) for what, index in steps]
    await settle()
    parked = [task for task in tasks if not task.done()]
    before = {
        name: (entry.group.generation, dict(entry.offsets))
        for name, entry in broker.shard.registry.entries.items()
        if entry.offsets or entry.group.generation}
    log = broker.log
    assert isinstance(log, GroupMemoryLog)
    await broker.restart()
    for task in parked:
        task.cancel()

    again = broker.shard.registry.entries
    assert {name: (e.group.generation, dict(e.offsets)) for name, e in again.items()} == before
    for client in clients:
        code = await client.heartbeat()
        group = broker.shard.find(client.group_id)
        if group is not None and client.member_id in group.members:
            assert code in (Code.NONE, Code.ILLEGAL_GENERATION), code
    await broker.groups.stop()


async def step(broker: GroupBroker, client: Client, what: str) -> None:
    match what:
        case "join":
            await client.join()
        case "sync":
            await client.sync()
        case "heartbeat":
            await client.heartbeat()
        case "commit":
            await client.commit(client.generation + 7, topic=client.topics[0])
        case "leave":
            await client.leave()
        case "wait":
            await broker.pass_ms(11_000)
        case "topic":
            await broker.cluster.controller.delete_topics([("u", ZERO_UUID)])
        case _:
            broker.clock.advance_ms(SETTINGS.offsets_retention_minutes * 60_000)
            broker.shard.expire_offsets()

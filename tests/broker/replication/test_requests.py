"""Responses of the nodes of a chain to clients: where to write, where to read, who leads."""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from quipu.broker.handlers import k02_list_offsets, k21_delete_records, k23_offset_for_leader_epoch
from quipu.broker.handlers.k00_produce import produce
from quipu.broker.handlers.k01_fetch import fetch
from quipu.broker.observing.stats import Stats
from quipu.broker.partitions.replicated_partition import ReplicatedPartition
from quipu.broker.serving.context import Context
from quipu.broker.serving.fetch_sessions import FetchClient, FetchSessions
from quipu.broker.serving.fetching import REFER_SECONDS
from quipu.controller.members import BrokerState
from quipu.model.errors import Code
from quipu.model.ids import NodeId
from quipu.model.listeners import DEFAULT
from quipu.model.partition_log import FetchWaiter
from quipu.model.settings import BrokerSettings, TopicSettings
from quipu.runtime.clock import ManualClock
from quipu.runtime.rng import SeededRng
from quipu.wire.frame import decode_response, encode_request
from quipu.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from quipu.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from quipu.wire.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from quipu.wire.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from quipu.wire.schema import Request
from tests.broker.replication.rig import TOPIC_ID, ANode, Rig
from tests.harness.here import batch_of
from tests.harness.here import produce as produce_request
from tests.looped import looped

DIRTY = -2
LATEST = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(
    name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])])


class OnePartition:
    """As much of `Partitions` as requests use."""

    def __init__(self, node: ANode) -> None:
        self._node = node
        self.waiting: dict[FetchWaiter, None] = {}

    def find(self, topic: str, partition: int) -> ReplicatedPartition | None:
        return self._node.partition if (topic, partition) == ("t", 0) else None

    def find_for_wire(self, topic: str | bytes, partition: int) -> ReplicatedPartition | None:
        return self.find("t" if topic in ("t", TOPIC_ID.bytes) else "", partition)

    def finish_soon(self, waiter: FetchWaiter) -> None:
        asyncio.get_running_loop().call_soon(waiter.finish)


class Answer:
    """A `Reply` that a test can wait for."""

    def __init__(self, fetch_client: FetchClient) -> None:
        self.fetch_client = fetch_client
        self.listener = DEFAULT
        self.frame: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def send(self, buffers: Sequence[Any]) -> None:
        self.frame.set_result(b"".join(buffers))

    def close(self, why: str) -> None:
        self.frame.set_exception(ConnectionError(why))

    def when_lost(self, release: Callable[[], object]) -> None:
        """These connections stay."""


class Client:
    """Asks one node; the cluster as it is known there is the rig's."""

    def __init__(self, rig: Rig, node: ANode, leader: int = 1) -> None:
        partition = SimpleNamespace(leader=NodeId(leader), leader_epoch=rig.epoch)
        elsewhere = SimpleNamespace(leader=NodeId(9), leader_epoch=4)
        topic = SimpleNamespace(partitions=(partition, elsewhere))
        brokers = {
            NodeId(number): BrokerState(
                node_id=NodeId(number), host=f"n{number}", port=9000 + number, rack="r",
                fenced=number == 8)
            for number in range(1, 10)
        }
        state = SimpleNamespace(
            topics={"t": topic}, topics_by_id={TOPIC_ID: topic}, brokers=brokers)
        self.fetch_client = FetchClient("::1")  # one connection
        stats = Stats()
        self.broker: Any = SimpleNamespace(
            settings=BrokerSettings(), clock=rig.clock, stats=stats, node_id=node.node_id,
            partitions=OnePartition(node), diskless=None, recompressed=set(),
            cluster=SimpleNamespace(
                state=state, settings=BrokerSettings(), is_settled=lambda _: True,
                topic_settings=lambda _: TopicSettings()),
            fetch_sessions=FetchSessions(
                rig.clock, SeededRng(1), stats, slots=10, partitions_max=1000))

    def send(self, request: Request, version: int) -> "asyncio.Task[Any]":
        reply = Answer(self.fetch_client)
        frame = encode_request(request, version, correlation_id=7)
        handle = produce if request.KEY == 0 else fetch
        handle(self.broker, reply, memoryview(bytearray(frame[4:])))

        async def response() -> Any:
            got = await asyncio.wait_for(reply.frame, 5)
            return decode_response(memoryview(got)[4:], request.KEY, version)[1]

        return asyncio.create_task(response())

    async def produce(self, *values: bytes, acks: int = -1, version: int = 10) -> Any:
        batch = batch_of(*values, timestamp=1)
        response = await self.send(produce_request("t", batch, acks=acks), version)
        return response.responses[0].partition_responses[0], response

    async def fetch(self, offset: int, *, version: int = 16, **fields: Any) -> Any:
        response = await self.send(fetch_request(offset, version, **fields), version)
        return response.responses[0].partitions[0], response

    async def ask(self, handler: ModuleType, request: Request, version: int) -> Any:
        context = Context(version, 7, "test", "::1")
        response = handler.handle(self.broker, request, context)
        return await response if inspect.isawaitable(response) else response


def fetch_request(offset: int, version: int, **fields: Any) -> FetchRequest:
    parts = [FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)]
    topic = FetchTopic(topic="t", topic_id=TOPIC_ID, partitions=parts)
    if fields.pop("dirty", False):
        fields |= ({"replica_state": ReplicaState(replica_id=DIRTY)} if version >= 15
                   else {"replica_id": DIRTY})
    return FetchRequest(max_wait=fields.pop("max_wait", 0), min_bytes=1, max_bytes=1 << 20,
                        topics=[topic], **fields)


async def a_chain(rig: Rig) -> list[ANode]:
    nodes = rig.nodes(3)
    rig.configure(serving=[1, 2, 3])
    await rig.leads(nodes[0])
    await rig.settled()
    return nodes


@pytest.mark.parametrize("version", [9, 10, 12])
@looped
async def test_a_write_to_the_wrong_node_is_told_who_leads(tmp_path: Path, version: int) -> None:
    """V3, K12: from v10 on with the leader, its epoch and how to reach it."""
    rig = Rig(tmp_path)
    _, b, _ = await a_chain(rig)
    part, response = await Client(rig, b).produce(b"x", version=version)
    assert part.error_code == Code.NOT_LEADER_OR_FOLLOWER
    leader = (part.current_leader.leader_id, part.current_leader.leader_epoch)
    if version >= 10:
        assert leader == (1, rig.epoch)
        (endpoint,) = response.node_endpoints
        assert (endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack) == (
            1, "n1", 9001, "r")
    else:
        assert (leader, response.node_endpoints) == ((-1, -1), [])
    assert b.partition.log.end_offset == 0


@looped
async def test_a_partition_of_another_chain_is_told_apart_from_one_that_is_not(
    tmp_path: Path,
) -> None:
    """V4: this node knows who leads what it does not hold."""
    rig = Rig(tmp_path)
    a, *_ = await a_chain(rig)
    batch = batch_of(b"x", timestamp=1)
    request = produce_request("t", None, batch, batch)
    response = await Client(rig, a).send(request, 11)
    parts = response.responses[0].partition_responses
    assert [part.error_code for part in parts[1:]] == [
        Code.NOT_LEADER_OR_FOLLOWER, Code.UNKNOWN_TOPIC_OR_PARTITION]
    assert parts[1].current_leader.leader_id == 9
    assert [endpoint.node_id for endpoint in response.node_endpoints] == [9]


@looped
async def test_acks_all_is_answered_when_the_tail_has_it(tmp_path: Path) -> None:
    """V12: broker.partitions.A1; acks=1 at once; acks=all when committed; acks=0 not at all."""
    rig = Rig(tmp_path)
    a, *_ = await a_chain(rig)
    client = Client(rig, a)
    rig.net.cut(2, 3)
    waiting = asyncio.ensure_future(client.produce(b"all"))
    await rig.turns(20)
    assert (await client.produce(b"one", acks=1))[0].base_offset == 1
    assert not waiting.done()
    rig.net.heal()
    part, _ = await waiting
    assert (part.error_code, part.base_offset) == (0, 0)


@looped
async def test_acks_all_gives_up_after_the_requests_timeout(tmp_path: Path) -> None:
    """V12: REQUEST_TIMED_OUT, and the batch stays where it is."""
    rig = Rig(tmp_path)
    a, *_ = await a_chain(rig)
    rig.net.cut(2, 3)
    waiting = asyncio.ensure_future(Client(rig, a).produce(b"x"))
    await rig.pass_time(102)  # 10 s, as the request says
    assert (await waiting)[0].error_code == Code.REQUEST_TIMED_OUT
    assert a.values(dirty=True) == [b"x"]


@looped
async def test_the_head_sends_consumers_to_the_tail(tmp_path: Path) -> None:
    """V3: KIP-392, for clients that understand it; others are served by the head itself."""
    rig = Rig(tmp_path)
    a, b, c = await a_chain(rig)
    head = Client(rig, a)
    await head.produce(b"x")
    await rig.settled()
    for version in (11, 12, 13, 16):
        part, _ = await Client(rig, a).fetch(0, version=version)
        assert (part.error_code, part.preferred_read_replica) == (0, 3)
        assert not part.records
        assert part.high_watermark == 1
    part, _ = await head.fetch(0, version=10)
    assert len(part.records) > 0
    for node in (b, c):
        part, _ = await Client(rig, node).fetch(0, version=16)
        assert (part.error_code, part.preferred_read_replica) == (0, -1)
        assert len(part.records) > 0


@looped
async def test_nobody_is_sent_to_a_tail_that_is_down(tmp_path: Path) -> None:
    """V3: until the chain is shortened the head serves all consumers."""
    rig = Rig(tmp_path)
    a, *_ = await a_chain(rig)
    client = Client(rig, a)
    await client.produce(b"x")
    brokers = client.broker.cluster.state.brokers
    brokers[NodeId(3)] = replace(brokers[NodeId(3)], fenced=True)
    part, _ = await client.fetch(0)
    assert part.preferred_read_replica == -1
    assert len(part.records) > 0


@looped
async def test_who_comes_back_from_the_tail_is_served_by_the_head(tmp_path: Path) -> None:
    """V3: some clients ignore where they are sent unless they were given a rack, and some cannot
    reach that node; they are sent again later, or when another node is the tail.
    """
    rig = Rig(tmp_path)
    a, b, _ = await a_chain(rig)
    head = Client(rig, a)
    await head.produce(b"x")
    await rig.settled()
    head.broker.clock = clock = ManualClock()
    almost_ms = int(REFER_SECONDS * 1000) - 1
    for wait_ms, tail in ((0, 3), (0, -1), (almost_ms, -1), (1, 3), (1, -1)):
        clock.advance_ms(wait_ms)
        part, _ = await head.fetch(0, version=11)
        assert (part.preferred_read_replica, bool(part.records)) == (tail, tail < 0)
    rig.configure(serving=[1, 2], offline=[3])
    await rig.settled(a, b)
    part, _ = await head.fetch(0, version=11)
    assert part.preferred_read_replica == 2


@looped
async def test_a_session_is_told_of_the_tail(tmp_path: Path) -> None:
    """V3: an incremental session does not take the redirection for old news."""
    rig = Rig(tmp_path)
    a, *_ = await a_chain(rig)
    head = Client(rig, a)
    part, response = await head.fetch(0, session_epoch=0)
    assert part.preferred_read_replica == 3
    head.fetch_client.referrals.clear()
    request = fetch_request(0, 16, session_id=response.session_id, session_epoch=1)
    again = await head.send(request, 16)
    assert again.responses[0].partitions[0].preferred_read_replica == 3


@looped
async def test_members_that_do_not_serve_give_nothing(tmp_path: Path) -> None:
    """V3, V15: a syncing node says who leads; a dirty reader gets what it has."""
    rig = Rig(tmp_path)
    a, *_ = await a_chain(rig)
    await a.produce(b"x")
    d = rig.add()
    rig.configure(serving=[1, 2, 3], syncing=[4], new_epoch=False)
    await rig.settled(a, d)
    client = Client(rig, d)
    part, response = await client.fetch(0)
    assert part.error_code == Code.NOT_LEADER_OR_FOLLOWER
    assert part.current_leader.leader_id == 1
    assert [endpoint.host for endpoint in response.node_endpoints] == ["n1"]
    for version in (4, 12, 16):
        part, _ = await client.fetch(0, version=version, dirty=True)
        assert part.error_code == 0
        assert len(part.records) > 0


@looped
async def test_dirty_readers_see_what_is_not_committed(tmp_path: Path) -> None:
    """V3: by explicit request only, up to the end of the log, at any node."""
    rig = Rig(tmp_path)
    a, b, c = await a_chain(rig)
    rig.net.cut(2, 3)
    await a.produce(b"x", acks=1)
    await rig.turns(20)
    for node, seen in ((a, True), (b, True), (c, False)):
        client = Client(rig, node)
        part, _ = await client.fetch(0, dirty=True)
        assert (part.error_code, len(part.records or b"") > 0) == (0, seen)
        part, _ = await client.fetch(0, version=10)
        assert (part.error_code, part.high_watermark, part.records or b"") == (0, 0, b"")
        latest = await client.ask(k02_list_offsets, ListOffsetsRequest(
            replica_id=DIRTY, topics=[ListOffsetsTopic(name="t", partitions=[
                ListOffsetsPartition(partition_index=0, timestamp=-1)])]), 7)
        assert latest.topics[0].partitions[0].offset == int(seen)


@looped
async def test_a_fetch_that_waits_hears_of_the_commit(tmp_path: Path) -> None:
    """V3: broker.partitions.F1; at the tail, when it has the record; at the
    head, when it hears that the tail has.
    """
    rig = Rig(tmp_path)
    a, _, c = await a_chain(rig)
    waits = [asyncio.ensure_future(Client(rig, node).fetch(0, version=10, max_wait=60_000))
             for node in (a, c)]
    await rig.turns(5)
    assert not any(wait.done() for wait in waits)
    await a.produce(b"news")
    for part, _ in await asyncio.wait_for(asyncio.gather(*waits), 5):
        assert part.high_watermark == 1
        assert len(part.records) > 0


@looped
async def test_a_fetch_that_waits_hears_that_the_node_serves_no_longer(tmp_path: Path) -> None:
    """V15: a deposed node's waiting readers are sent away."""
    rig = Rig(tmp_path)
    a, *_ = await a_chain(rig)
    wait = asyncio.ensure_future(Client(rig, a).fetch(0, version=10, max_wait=60_000))
    await rig.turns(5)
    rig.configure(serving=[2, 3], offline=[1])
    part, _ = await asyncio.wait_for(wait, 5)
    assert part.error_code == Code.NOT_LEADER_OR_FOLLOWER


@looped
async def test_without_a_lease_history_is_read_and_its_end_is_not(tmp_path: Path) -> None:
    """V5, V15: broker.partitions.P7; committed records may be read; that there is nothing newer is
    not said.
    """
    rig = Rig(tmp_path)
    a, *_ = await a_chain(rig)
    await a.produce(b"x")
    a.leased.lease_until = rig.clock.monotonic()
    client = Client(rig, a)
    part, _ = await client.fetch(0, version=10)
    assert (part.error_code, len(part.records) > 0) == (0, True)
    part, _ = await client.fetch(1, version=10)
    assert part.error_code == Code.NOT_LEADER_OR_FOLLOWER
    part, _ = await client.produce(b"y")
    assert part.error_code == Code.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("version", [4, 10, 11, 16])
@pytest.mark.parametrize("place", [0, 1, 2])
@looped
async def test_out_of_range_is_said_only_by_who_is_sure(
    tmp_path: Path, version: int, place: int
) -> None:
    """V5, V15, K2: a client would begin at the start or at the end, and miss what others have."""
    rig = Rig(tmp_path)
    nodes = await a_chain(rig)
    await nodes[0].produce(b"x")
    await rig.settled()
    node, client = nodes[place], Client(rig, nodes[place])
    if place < 2 and version >= 11:
        await client.fetch(1, version=version)  # where it is sent to the tail
    part, _ = await client.fetch(2, version=version, max_wait=0)
    assert part.error_code == Code.OFFSET_OUT_OF_RANGE
    node.leased.lease_until = rig.clock.monotonic()
    part, _ = await client.fetch(2, version=version, max_wait=0)
    assert part.error_code == Code.NOT_LEADER_OR_FOLLOWER


@looped
async def test_what_is_not_known_to_be_committed_is_not_out_of_range(tmp_path: Path) -> None:
    """V5, K2: a consumer that has read it on another node waits until this one knows, too."""
    rig = Rig(tmp_path)
    a, *_ = await a_chain(rig)
    rig.net.cut(1, 2)
    a.append(b"x", b"y").cancel()
    assert (a.partition.log.end_offset, a.partition.high_watermark) == (2, 0)
    for version in (4, 10, 11):
        client = Client(rig, a)
        await client.fetch(0, version=version, max_wait=0)
        part, _ = await client.fetch(2, version=version, max_wait=0)
        expected = Code.NONE if version < 11 else Code.OFFSET_NOT_AVAILABLE
        assert (part.error_code, bool(part.records)) == (expected, False), version


@looped
async def test_offsets_are_listed_by_the_leader(tmp_path: Path) -> None:
    """K2: the latest is what is committed; other nodes say that they do not lead."""
    rig = Rig(tmp_path)
    a, b, _ = await a_chain(rig)
    await a.produce(b"x")
    response = await Client(rig, a).ask(k02_list_offsets, LATEST, 7)
    assert response.topics[0].partitions[0].offset == 1
    response = await Client(rig, b).ask(k02_list_offsets, LATEST, 7)
    assert response.topics[0].partitions[0].error_code == Code.NOT_LEADER_OR_FOLLOWER


@looped
async def test_deleted_records_are_deleted_on_every_node(tmp_path: Path) -> None:
    """V7: the start of the log moves with a batch that is replicated like any other."""
    rig = Rig(tmp_path)
    nodes = await a_chain(rig)
    for number in range(3):
        await nodes[0].produce(b"%d" % number)
    request = DeleteRecordsRequest(timeout=1000, topics=[DeleteRecordsTopic(
        name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=2)])])
    response = await Client(rig, nodes[0]).ask(k21_delete_records, request, 2)
    assert response.topics[0].partitions[0].low_watermark == 2
    await rig.settled()
    assert [node.partition.log.log_start_offset for node in nodes] == [2, 2, 2]
    response = await Client(rig, nodes[1]).ask(k21_delete_records, request, 2)
    assert response.topics[0].partitions[0].error_code == Code.NOT_LEADER_OR_FOLLOWER
    rig.check_identical()


@looped
async def test_ends_of_epochs_are_told_by_all_who_serve(tmp_path: Path) -> None:
    """V15: by which a consumer finds out whether what it read is still there."""
    rig = Rig(tmp_path)
    a, b, _ = await a_chain(rig)
    await a.produce(b"x")
    await rig.settled()
    rig.configure(serving=[2, 3, 1])
    await rig.leads(b)
    await b.produce(b"y")
    await rig.settled()
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(
        topic="t", partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=1)])])
    for node in (a, b):
        response = await Client(rig, node).ask(k23_offset_for_leader_epoch, request, 4)
        found = response.topics[0].partitions[0]
        assert (found.error_code, found.leader_epoch, found.end_offset) == (0, 1, 1)

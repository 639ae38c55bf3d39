"""The simulated network: links, clients' connections and nodes' ways to each other."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from quipu.broker.listening import peer_config
from quipu.model.errors import QuipuError
from quipu.model.ids import NodeId
from quipu.model.settings_sources import broker_settings, from_assignments
from quipu.runtime.net.limits import NetLimits
from quipu.runtime.peers.peer_net import Identity, PeerError, PeerKind, PeerUnavailable
from quipu.sim.dice import Dice
from quipu.sim.loop import Process, SimLoop
from quipu.sim.trace import Trace
from quipu.sim.twins.frames import ClientLink, SimDisconnected
from quipu.sim.twins.net import SimNet, Weather
from quipu.sim.twins.peers import SILENCE_SECONDS, SimPeers


class Town:
    """A network with nodes on it."""

    def __init__(self, seed: int = 1, **weather: float) -> None:
        self.loop = SimLoop()
        self.net = SimNet(self.loop, Dice(seed), Trace(), weather=Weather(**weather))
        self.outside = Process(self.loop, "outside")
        self.nodes: list[tuple[Process, SimPeers]] = []

    def run(self, work: Awaitable[Any], seconds: float = 60.0) -> Any:
        task = self.outside.run(_awaited(work), "test")
        assert self.loop.run_until(self.loop.now + seconds, done=task.done), "takes too long"
        return task.result()

    def node(self, number: int) -> SimPeers:
        process = Process(self.loop, f"n{number}")
        peers = process.context.run(lambda: self.net.door(process, f"n{number}").peers(
            Identity(NodeId(number), f"a-{number}", Dice(number).uuid()),
            peer_config(broker_settings(from_assignments([
                f"peer.listener=n{number}:9192", "peer.secret=a secret of all nodes"]))),
            Dice(number)))
        assert isinstance(peers, SimPeers)
        process.run(peers.start(), "start")
        self.nodes.append((process, peers))
        return peers

    def pair(self) -> tuple[SimPeers, SimPeers]:
        one, two = self.node(1), self.node(2)
        one.know(NodeId(2), "n2", 9192)
        two.know(NodeId(1), "n1", 9192)
        self.loop.run_until(1)
        assert one.is_up(NodeId(2))
        assert two.is_up(NodeId(1))
        return one, two


async def _awaited(work: Awaitable[Any]) -> Any:
    return await work


class Heard:
    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []

    def up(self, node_id: NodeId) -> None:
        self.told.append(("up", node_id))

    def down(self, node_id: NodeId) -> None:
        self.told.append(("down", node_id))

    def drained(self, node_id: NodeId) -> None:
        self.told.append(("drained", node_id))


def messages_of(peers: SimPeers, kind: int = PeerKind.RAFT) -> list[bytes]:
    got: list[bytes] = []
    peers.on(kind, lambda _, body: got.append(bytes(body)))
    return got


def test_messages_arrive_in_their_order_in_fine_weather() -> None:
    """V9: as over TCP."""
    town = Town()
    one, two = town.pair()
    got = messages_of(two)
    for number in range(20):
        assert one.send(NodeId(2), PeerKind.RAFT, [b"m", b"%d" % number])
    town.loop.run_until(town.loop.now + 1)
    assert got == [b"m%d" % number for number in range(20)]


def test_bad_weather_loses_doubles_and_reorders() -> None:
    """V22: message loss, duplication, reordering."""
    town = Town(loss=0.2, duplicate=0.2, reorder=0.2)
    one, two = town.pair()
    got = messages_of(two)
    for number in range(200):
        one.send(NodeId(2), PeerKind.RAFT, [b"%d" % number])
    town.loop.run_until(town.loop.now + 5)
    numbers = [int(each) for each in got]
    assert len(set(numbers)) < 200, "none lost"
    assert len(numbers) > len(set(numbers)), "none doubled"
    assert numbers != sorted(numbers), "none overtaken"


def test_a_one_way_cut_stops_one_direction() -> None:
    """V22: sim.W1; one-way partitions."""
    town = Town()
    one, two = town.pair()
    at_one, at_two = messages_of(one), messages_of(two)
    town.net.cut("n1", "n2")
    one.send(NodeId(2), PeerKind.RAFT, [b"lost"])
    two.send(NodeId(1), PeerKind.RAFT, [b"heard"])
    town.loop.run_until(town.loop.now + 1)
    assert (at_one, at_two) == ([b"heard"], [])


def test_a_lasting_cut_ends_the_session_and_it_comes_back() -> None:
    """V5: sim.E3; a node that is cut off is noticed, and found again."""
    town = Town()
    one, _ = town.pair()
    heard = Heard()
    one.watch(heard)
    town.net.cut("n1", "n2")
    town.loop.run_until(town.loop.now + 2 * SILENCE_SECONDS)
    assert heard.told == [("down", 2)]
    assert not one.send(NodeId(2), PeerKind.RAFT, [b"x"])
    town.net.heal()
    town.loop.run_until(town.loop.now + 5)
    assert heard.told == [("down", 2), ("up", 2)]


def test_what_was_sent_in_a_session_that_ended_does_not_arrive() -> None:
    """sim.E1: not in the next session either."""
    town = Town()
    one, two = town.pair()
    got = messages_of(two)
    one.send(NodeId(2), PeerKind.RAFT, [b"old"])
    one.reset()
    town.loop.run_until(town.loop.now + 3)
    assert one.is_up(NodeId(2)), "it was dialled again"
    one.send(NodeId(2), PeerKind.RAFT, [b"new"])
    town.loop.run_until(town.loop.now + 1)
    assert got == [b"new"]


def test_nothing_reaches_a_process_that_is_dead() -> None:
    """sim.E2: what was under way when it died is gone."""
    town = Town()
    one, two = town.pair()
    got = messages_of(two)
    process = next(process for process, peers in town.nodes if peers is two)
    one.send(NodeId(2), PeerKind.RAFT, [b"too late"])
    process.kill()
    town.loop.run_until(town.loop.now + 1)
    assert got == []


def test_calls_are_answered_refused_and_end_when_nobody_answers() -> None:
    town = Town()
    one, two = town.pair()

    async def double(_: NodeId, body: bytes) -> bytes:
        if body == b"no":
            raise QuipuError("not that")
        return body * 2

    two.serve(7, double)
    assert town.run(one.call(NodeId(2), 7, b"ab", timeout_seconds=1)) == b"abab"
    with pytest.raises(PeerError, match="not that"):
        town.run(one.call(NodeId(2), 7, b"no", timeout_seconds=1))
    town.nodes[1][0].pause()
    with pytest.raises(PeerUnavailable):
        town.run(one.call(NodeId(2), 7, b"ab", timeout_seconds=1))


def test_a_body_is_gone_when_its_handler_returns() -> None:
    """runtime.P3: code that keeps a borrowed body reads wrong bytes, and tests notice."""
    town = Town()
    one, two = town.pair()
    kept: list[memoryview] = []
    two.on(PeerKind.CHAIN, lambda _, body: kept.append(body))
    one.send(NodeId(2), PeerKind.CHAIN, [b"bytes"])
    town.loop.run_until(town.loop.now + 1)
    assert bytes(kept[0]) == b"\xa5" * 5


def test_a_full_backlog_refuses_and_tells_when_it_has_room() -> None:
    """V9: bounded memory for what is on its way."""
    town = Town(bytes_per_second=100_000.0)
    one, two = town.pair()
    heard = Heard()
    one.watch(heard)
    messages_of(two)
    town.net.backlog_max = 10_000
    taken = 0
    while one.send(NodeId(2), PeerKind.RAFT, [bytes(1000)]):
        taken += 1
    assert taken == 10
    assert one.backlog(NodeId(2)) == 10_000
    town.loop.run_until(town.loop.now + 1)
    assert heard.told == [("drained", 2)]


def test_whoever_is_met_becomes_known() -> None:
    """V5: addresses without names, from a list or from DNS."""
    town = Town()
    one, _ = town.node(1), town.node(2)
    one.meet("n2", 9192)
    town.loop.run_until(3)
    assert list(one.known()) == [2]
    assert one.is_up(NodeId(2))


# -- clients


class Echo:
    """A handler that sends each frame back."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.lost = False

    def frame_received(self, frame: memoryview) -> None:
        self.connection.send([len(frame).to_bytes(4, "big"), bytes(frame)])

    def drained(self) -> None:
        """Nothing was held back."""

    def connection_lost(self) -> None:
        self.lost = True


def served(town: Town, accept: Callable[[Any], Any] = Echo) -> Process:
    process = Process(town.loop, "n1")

    async def start() -> None:
        server = town.net.door(process, "n1").frame_server(accept, NetLimits())
        server.bind("n1", 9092)
        server.serve()

    process.run(start(), "start")
    town.loop.run_until(town.loop.now)
    return process


async def connected(town: Town) -> ClientLink:
    link = ClientLink(town.net, "c1")
    await link.connect("n1", 9092)
    return link


def test_a_connection_knows_the_listener_that_it_came_by() -> None:
    """As with the real server: one server, several addresses."""
    town = Town()
    seen: list[tuple[str, str | None]] = []

    def accept(connection: Any) -> Echo:
        seen.append((connection.listener, connection.peer_name))
        return Echo(connection)

    process = Process(town.loop, "n1")

    async def start() -> None:
        server = town.net.door(process, "n1").frame_server(accept, NetLimits())
        server.bind("n1", 9092, listener="INSIDE")
        server.bind("n1", 9093, listener="OUTSIDE")
        server.serve()

    process.run(start(), "start")
    town.loop.run_until(town.loop.now)
    for port in (9093, 9092):
        town.run(ClientLink(town.net, "c1").connect("n1", port))
    assert seen == [("OUTSIDE", None), ("INSIDE", None)]


def test_a_client_is_answered_in_order() -> None:
    town = Town()
    served(town)

    async def talk() -> list[bytes]:
        link = await connected(town)
        for number in range(5):
            link.send(b"\0\0\0\1" + b"%d" % number)
        return [await link.answer() for _ in range(5)]

    assert town.run(talk()) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_cut_delays_a_stream_and_loses_nothing() -> None:
    """sim.W2: as TCP does: what was sent during a short cut arrives after it."""
    town = Town()
    served(town)

    async def talk() -> tuple[bytes, float]:
        link = await connected(town)
        town.net.cut("c1", "n1")
        link.send(b"\0\0\0\1x")
        town.loop.universal_at(town.loop.now + 3, town.net.heal)
        return await link.answer(), town.loop.now

    answer, now = town.run(talk())
    assert answer == b"x"
    assert now > 3


def test_a_client_notices_that_a_server_is_gone() -> None:
    town = Town()
    process = served(town)

    async def talk() -> None:
        link = await connected(town)
        server = town.net.clients_at["n1", 9092]
        process.kill()
        server.died()
        with pytest.raises(SimDisconnected):
            await link.answer()
        server.stop_accepting()
        with pytest.raises(SimDisconnected):
            await connected(town)

    town.run(talk())


def test_frames_wait_while_a_handler_pauses() -> None:
    """K8: a node reads no more requests than it wants to."""
    town = Town()
    handlers: list[Any] = []

    def accept(connection: Any) -> Echo:
        handlers.append(Echo(connection))
        connection.pause()
        return handlers[0]

    served(town, accept)

    async def talk() -> tuple[bool, bytes]:
        link = await connected(town)
        link.send(b"\0\0\0\1x")
        waiting = asyncio.get_running_loop().create_task(link.answer())
        await asyncio.sleep(1)
        had_to_wait = not waiting.done()
        handlers[0].connection.resume()
        return had_to_wait, await waiting

    assert town.run(talk()) == (True, b"x")

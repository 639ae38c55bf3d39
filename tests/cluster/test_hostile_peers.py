"""Peers that are strangers, no members, or out of their minds, at a real cluster that goes on.

A bystander writes with acks=all and reads throughout; afterwards all nodes are killed and started
again, and everything that was acknowledged is there, once and in order.
"""

import contextlib
import itertools
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from quipu.broker.cluster.controller_server import CALL_KIND
from quipu.broker.cluster.requests import (
    AllocateProducerIdsRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    ControlledShutdownRequest,
    CreateInternalTopicsRequest,
    EnvelopeRequest,
    InternalTopic,
    encode_request,
)
from quipu.chain.codec import encode as encode_chain
from quipu.chain.messages import (
    BEGIN,
    Ack,
    DescribeLog,
    DescribeReason,
    Fenced,
    LogDescription,
    Replicate,
)
from quipu.model.batch_types import CONTROLLER
from quipu.model.ids import NO_EPOCH, Epoch, LogOffset, NodeId, RaftIndex, Term
from quipu.model.topics import CONSUMER_OFFSETS
from quipu.raft.codec import encode as encode_raft
from quipu.raft.membership import Configuration
from quipu.raft.messages import (
    AppendEntries,
    AppendEntriesResponse,
    InstallSnapshot,
    Message,
    RaftEntry,
    RaftHeartbeat,
    RaftHeartbeatResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from quipu.runtime.peers.hello import Handshake, Hello
from quipu.runtime.peers.peer_net import Identity, PeerError, PeerKind
from quipu.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from tests.cluster.test_failures import assert_kept
from tests.cluster.traffic import Traffic, traffic
from tests.harness.cluster import SECRET, RunningCluster
from tests.harness.raw import RawConnection
from tests.hostile.hostile_peer import HostilePeer

pytestmark = pytest.mark.xdist_group("cluster")

STRANGER = 66
LONG, INT = (1 << 63) - 1, (1 << 31) - 1
PAUSE_SECONDS_MAX = 20.0  # generous: two cores have all of it, and the attacker, to themselves
PATIENT = {  # so that a busy machine is not taken for a successful attack
    "broker.session.timeout.ms": "6000", "controller.quorum.election.timeout.ms": "2000",
    "controller.quorum.heartbeat.interval.ms": "200",
}
LOG_LINES_MAX = 400  # of one node, over a whole test


def raft_messages(terms: Iterator[int]) -> Iterator[Message]:
    """Everything that can be said in Raft, with numbers from `terms`."""
    for number in terms:
        term, index = Term(number), RaftIndex(min(number, LONG))
        bad = RaftEntry(RaftIndex(1), term, CONTROLLER, (b"no such record",))
        yield VoteRequest(term, index, term, is_pre_vote=False, is_transfer=True)
        yield VoteRequest(term, index, term, is_pre_vote=False, is_transfer=False)
        yield VoteResponse(term, is_granted=False, is_pre_vote=False)
        yield RaftHeartbeat(term, index, 1)
        yield RaftHeartbeatResponse(term, LONG)
        yield AppendEntries(term, RaftIndex(0), Term(0), index, index, (bad,))
        yield AppendEntriesResponse(term, is_success=False, index=index, hint_index=index,
                                    hint_term=term,
                          is_blank=True)
        yield InstallSnapshot(term, index, term, Configuration.of([STRANGER]), index, 0, 0, b"")
        yield TimeoutNow(term)


def chain_bodies(topic_id: UUID, epochs: Iterator[int]) -> Iterator[bytes]:
    """Everything that can be said of a partition, with numbers from `epochs`."""
    far, zero = LogOffset(1 << 61), LogOffset(0)
    for number, partition in itertools.product(epochs, (0, 1)):
        epoch = Epoch(number)
        for message in (
                Fenced(epoch), DescribeLog(epoch), Ack(epoch, LONG, BEGIN, far, far),
                LogDescription(epoch, DescribeReason.ANNOUNCEMENT, 0, zero, far, far, ((epoch,
                                                                                        zero),)),
                Replicate(epoch, INT, 1, LONG, zero, NO_EPOCH, BEGIN, BEGIN, far, far, ()),
                Replicate(epoch, INT, 5, LONG, far, NO_EPOCH, BEGIN, BEGIN, far, zero,
                          (b"x" * 100,))):
            yield b"".join(encode_chain(topic_id.bytes, partition, message))


def calls(about: int) -> Iterator[bytes]:
    """Requests to the controller that nobody may make for `about`, or at all."""
    names = [".", "..", "", "../../etc/passwd", "x" * 250, "a/b", "\0", "__cluster", "ä"]
    for is_internal in (True, False):
        yield encode_request(CreateInternalTopicsRequest(
            topics=[InternalTopic(name=name, partition_count=1) for name in names],
            is_internal=is_internal))
        for name in names:
            yield encode_request(CreateInternalTopicsRequest(
                topics=[InternalTopic(name=name, partition_count=1)], is_internal=is_internal))
    yield encode_request(ControlledShutdownRequest(
        node_id=about, broker_epoch=1, incarnation=UUID(int=1)))
    yield encode_request(BrokerHeartbeatRequest(
        node_id=about, broker_epoch=1, incarnation=UUID(int=1), is_ready=True,
        trouble="x" * 1000))
    yield encode_request(BrokerRegistrationRequest(
        node_id=about, name="a-0", host="h", port=1, peer_host="h", peer_port=1,
        incarnation=UUID(int=1)))
    yield encode_request(AllocateProducerIdsRequest(node_id=about))
    yield encode_request(EnvelopeRequest(
        api_key=19, api_version=7, client_host="h", body=b"\xff" * 100))
    yield encode_request(EnvelopeRequest(api_key=0, api_version=9, client_host="h", body=b""))
    yield b"\xff\xff\xff\xff"


def topic_id(cluster: RunningCluster, topic: str) -> UUID:
    node = cluster["a-0"]
    with RawConnection(node.host, node.port) as raw:
        answer: Any = raw.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12)
    found: UUID = answer.topics[0].topic_id
    return found


def topic_names(cluster: RunningCluster) -> set[str]:
    node = cluster["a-0"]
    with RawConnection(node.host, node.port) as raw:
        answer: Any = raw.ask(MetadataRequest(topics=None), 12)
    return {topic.name for topic in answer.topics} - {CONSUMER_OFFSETS}  # the reader's group


def attacked(tmp_path: Path, attack: Callable[[RunningCluster, Traffic], None]) -> None:
    """Run `attack` under traffic; then all nodes die, and come back with everything."""
    with RunningCluster(tmp_path, settings=PATIENT) as cluster:
        cluster.create_topic("t", partitions=2, min_insync_replicas="2")
        with traffic(cluster, "t", 5) as running:
            running.await_progress()
            attack(cluster, running)
            running.await_progress(PAUSE_SECONDS_MAX)
        assert topic_names(cluster) == {"t"}
        cluster.kill()
        cluster.launch(cluster.nodes)
        assert topic_names(cluster) == {"t"}
        for name, node in cluster.nodes.items():
            lines = sum(" runtime.connection " not in line  # limited by itself
                        for line in node.log_text().splitlines())
            assert lines < LOG_LINES_MAX, f"{name} logged {lines} lines{cluster.logs()}"
            assert "Traceback" not in node.log_text(), node.log_text()
            assert SECRET not in node.log_text()
        assert_kept(cluster, running, "t")


def assert_undisturbed(cluster: RunningCluster, controller: str) -> None:
    """The same controller leads, and all nodes serve: nobody even had to be elected."""
    assert cluster.controller() == controller
    assert set(cluster.states("a").values()) == {"serving"}


@pytest.mark.timeout(300)
def test_strangers_at_the_peer_port_keep_no_nodes_apart(tmp_path: Path) -> None:
    """K8: slow ones, floods, half hellos and garbage, without the secret, at all three nodes."""

    def attack(cluster: RunningCluster, running: Traffic) -> None:
        addresses = [cluster.peer_address(name) for name in cluster.nodes]
        stopped = threading.Event()
        counts: list[int] = []
        attackers = [
            threading.Thread(target=_press, args=(address, stopped, counts, number))
            for number, address in enumerate(addresses)]
        for attacker in attackers:
            attacker.start()
        started = time.monotonic()
        for _ in range(6):
            running.await_progress(PAUSE_SECONDS_MAX, count=200)
            time.sleep(1)
        # A node that comes back finds the others through the crowd.
        cluster["a-2"].kill()
        cluster["a-2"].start()
        cluster.await_serving("a")
        stopped.set()
        for attacker in attackers:
            attacker.join(20)
        print(f"{sum(counts)} connections of strangers in {time.monotonic() - started:.0f} s")
        assert sum(counts) > 1000
        for name, other in (("a-0", "a-1"), ("a-1", "a-0")):
            assert f"lost node {cluster.node_id(other)} " not in cluster[name].log_text()

    attacked(tmp_path, attack)


def _press(
    address: tuple[str, int], stopped: threading.Event, counts: list[int], seed: int
) -> None:
    """Come again and again, in every way that costs the other side something."""
    rng = random.Random(seed)
    hello = Hello(Identity(NodeId(1), "a-0", UUID(int=seed + 1)), bytes(32), None)
    first = Handshake(mine=hello, secret=b"not the secret of it", is_dialler=True).first()
    whole = len(first).to_bytes(4, "big") + first
    crowd: list[socket.socket] = []
    count = 0
    while not stopped.is_set():
        with contextlib.suppress(OSError):
            sock = socket.create_connection(address, 5)
            sock.setblocking(False)
            count += 1
            crowd.append(sock)
            sock.send(rng.choice([
                b"", b"\0", whole[: rng.randrange(len(whole))], whole, whole[:-1] + b"?",
                b"\x7f\xff\xff\xff", b"GET / HTTP/1.1\r\n\r\n", rng.randbytes(200)]))
            if rng.random() < 0.05:
                rng.choice(crowd).send(b"\0")  # drip
        while len(crowd) > 300:
            crowd.pop(rng.randrange(len(crowd))).close()
        if count % 20 == 0:
            time.sleep(0.01)
    for sock in crowd:
        sock.close()
    counts.append(count)


@pytest.mark.timeout(300)
def test_one_that_knows_the_secret_and_is_no_member_changes_nothing(tmp_path: Path) -> None:
    """K8, V15: terms, epochs, records, calls and names of every kind, from outside."""

    def attack(cluster: RunningCluster, running: Traffic) -> None:
        controller = cluster.controller()
        about = topic_id(cluster, "t")
        refused = 0
        with HostilePeer(node_id=STRANGER, secret=SECRET) as peer:
            for name in cluster.nodes:
                node_id = cluster.node_id(name)
                peer.connect(node_id, cluster.peer_address(name))
                for message in raft_messages(iter([1, 2, 3, 50, 1 << 20, 1 << 40, 1 << 62, LONG])):
                    peer.send(node_id, PeerKind.RAFT, encode_raft(message))
                for body in chain_bodies(about, iter([0, 5, 100, 1 << 20, 1 << 30, INT])):
                    peer.send(node_id, PeerKind.CHAIN, body)
                for body in (b"", b"\xff" * 50, b"\x02" + b"\xff" * 80):
                    peer.send(node_id, PeerKind.RAFT, body)
                    peer.send(node_id, PeerKind.CHAIN, body)
                    peer.send(node_id, 77, body)
                running.await_progress(PAUSE_SECONDS_MAX)
                for body in calls(cluster.node_id("a-1")):
                    with pytest.raises(PeerError):
                        peer.ask(node_id, CALL_KIND, body)
                    refused += 1
            assert_undisturbed(cluster, controller)
        print(f"{refused} calls refused, {peer.heard} messages heard")

    attacked(tmp_path, attack)


@pytest.mark.timeout(300)
def test_a_member_with_absurd_numbers_takes_only_itself_out(tmp_path: Path) -> None:
    """K8, V15: one node is gone, and something speaks in its place, under its number."""

    def attack(cluster: RunningCluster, running: Traffic) -> None:
        about = topic_id(cluster, "t")
        victim = "a-2"
        cluster[victim].kill()
        cluster.await_serving("a", 2)
        with HostilePeer(node_id=cluster.node_id(victim), secret=SECRET, name=victim) as peer:
            for name in ("a-0", "a-1"):
                node_id = cluster.node_id(name)
                peer.connect(node_id, cluster.peer_address(name))
                for message in raft_messages(iter([1 << 40, 1 << 62, LONG])):
                    peer.send(node_id, PeerKind.RAFT, encode_raft(message))
                for body in chain_bodies(about, iter([1 << 20, 1 << 30, INT])):
                    peer.send(node_id, PeerKind.CHAIN, body)
                # near enough to be believed: a pause, until the metadata tells
                for ahead in range(1, 30):
                    for partition in (0, 1):
                        peer.send(node_id, PeerKind.CHAIN, b"".join(encode_chain(
                            about.bytes, partition, Fenced(Epoch(ahead)))))
                running.await_progress(PAUSE_SECONDS_MAX)
                for body in calls(cluster.node_id("a-1")):
                    with contextlib.suppress(PeerError):
                        peer.ask(node_id, CALL_KIND, body)
            running.await_progress(PAUSE_SECONDS_MAX)
        assert topic_names(cluster) == {"t"}
        cluster[victim].start()
        cluster.await_serving("a")

    attacked(tmp_path, attack)

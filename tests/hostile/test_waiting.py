"""Connections that wait, crowds of one address, and connections that come too fast.

Loopback has many addresses: attackers are at 127.0.0.2 and above, the bystander at 127.0.0.1.
"""

import contextlib
import resource
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from quipu.model.errors import Code
from quipu.wire.frame import encode_request
from quipu.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from quipu.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from quipu.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from quipu.wire.messages.k18_api_versions import ApiVersionsRequest
from tests.harness.node import RunningNode
from tests.harness.raw import RawConnection
from tests.hostile.bystander import TOPIC, Bystander
from tests.hostile.scrape import await_metric, metrics

pytestmark = pytest.mark.xdist_group("hostile-waiting")
CROWD = 4000
FETCH_VERSION = 11
JOIN_VERSION = 3  # a newcomer is admitted at once
RESET = struct.pack("ii", 1, 0)  # of SO_LINGER
QUIET = "quiet"  # a topic that nobody writes to


@contextlib.contextmanager
def running(tmp_path: Path, **settings: str) -> Iterator[RunningNode]:
    """A node; after the attack it is restarted, and must serve as before."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    given["group.initial.rebalance.delay.ms"] = "0"
    with RunningNode(tmp_path / "data", settings=given) as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        for name in (TOPIC, QUIET):
            admin.create_topics([NewTopic(name, num_partitions=1)])[name].result(30)
        yield node
        node.restart()
        with Bystander(node) as bystander:
            time.sleep(0.2)
        bystander.verdict()


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def dial(node: RunningNode, source: str) -> socket.socket:
    return socket.create_connection((node.host, node.port), 30, source_address=(source, 0))


def fetch(max_wait_ms: int, session_id: int = 0, epoch: int = -1) -> FetchRequest:
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait=max_wait_ms, min_bytes=1, max_bytes=1 << 20, session_id=session_id,
        session_epoch=epoch, topics=[FetchTopic(topic=QUIET, partitions=[part])])


def test_thousands_that_wait_and_hang_up_are_gone_at_once(
    tmp_path: Path, many_files: None
) -> None:
    """K8: long polls take all places; when they close, reset or vanish, others get in at once."""
    long_poll = encode_request(fetch(2**31 - 1), FETCH_VERSION, correlation_id=1)
    limits = {"max_connections": str(CROWD), "max_connections_per_ip": str(CROWD // 2),
              "max_connection_creation_rate": "1000000"}
    with running(tmp_path, **limits) as node:
        with Bystander(node) as bystander:
            time.sleep(0.1)
            crowd = []
            for number in range(CROWD):
                peer = dial(node, f"127.0.0.{2 + number % 2}")
                peer.sendall(long_poll * (1 + number % 3))  # some have more requests behind it
                crowd.append(peer)
            await_metric(node, "quipu_fetch_waiters", lambda count: count >= CROWD - 10)
            with RawConnection(node.host, node.port) as late:
                assert late.is_closed_by_peer()  # there is no place left
            started = time.monotonic()
            for number, peer in enumerate(crowd):
                if number % 5 == 0:
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                peer.close()
            closed_seconds = time.monotonic() - started
            await_metric(node, "quipu_fetch_waiters", lambda count: count == 0)
            await_metric(node, "quipu_connections", lambda count: count <= 10)
            gone_seconds = time.monotonic() - started
            for _ in range(100):
                with RawConnection(node.host, node.port) as late:
                    late.ask(ApiVersionsRequest(), 0)
        print(f"{CROWD} hung up in {closed_seconds:.1f} s, gone after {gone_seconds:.1f} s; "
              f"{bystander.verdict()}")
        found = metrics(node)
        assert found['quipu_connections_closed_total{reason="hung_up"}'] >= CROWD * 0.9
        assert found['quipu_connections_refused_total{limit="max.connections"}'] >= 1
        assert found["quipu_fetch_held_partitions"] == 0


def test_who_hangs_up_while_it_joins_is_not_awaited(tmp_path: Path) -> None:
    """K3, K8: broker.serving.Q5; a hundred that join and go leave no members behind, and nobody
    waits for them.
    """
    request = JoinGroupRequest(
        group_id="g", session_timeout=1_800_000, rebalance_timeout=2**31 - 1, member_id="",
        protocol_type="consumer", protocols=[JoinGroupRequestProtocol(name="a", metadata=b"")])
    with running(tmp_path) as node, RawConnection(node.host, node.port, timeout=30) as first:
        first.ask(FindCoordinatorRequest(key="g"), 3)
        assert first.ask(request, JOIN_VERSION).error_code == 0  # type: ignore[attr-defined]
        frame = encode_request(request, JOIN_VERSION, correlation_id=1)
        peers = [dial(node, "127.0.0.2") for _ in range(100)]
        for peer in peers:
            peer.sendall(frame)
        await_metric(node, 'quipu_group_members{group="g"}', lambda count: count == 101)
        for peer in peers:
            peer.close()
        await_metric(node, 'quipu_group_members{group="g"}', lambda count: count == 1)


def test_a_wait_is_capped_whatever_is_asked(tmp_path: Path) -> None:
    """K8: fetch.max.wait.ms."""
    with (running(tmp_path, fetch_max_wait_ms="300") as node,
          RawConnection(node.host, node.port, timeout=30) as connection):
        started = time.monotonic()
        connection.ask(fetch(2**31 - 1), FETCH_VERSION)
        assert 0.2 < time.monotonic() - started < 20


def test_a_crowd_of_one_address_does_not_lock_out_another(tmp_path: Path) -> None:
    """K8: without any setting an address has half of the places; the rest are others'."""
    with running(tmp_path, max_connections="300") as node:
        with Bystander(node) as bystander, contextlib.ExitStack() as opened:
            for _ in range(1000):
                opened.callback(dial(node, "127.0.0.2").close)
            refused = 'quipu_connections_refused_total{limit="max.connections.per.ip"}'
            await_metric(node, refused, lambda count: count == 850)
            for _ in range(100):
                late = RawConnection(node.host, node.port)
                opened.enter_context(late)
                late.ask(ApiVersionsRequest(), 0)
        bystander.verdict()


def test_overrides_open_and_shut_the_door_for_an_address(tmp_path: Path) -> None:
    """K8: max.connections.per.ip.overrides, as Kafka writes it."""
    overrides = "127.0.0.2:0,127.0.0.3:2"
    with running(tmp_path, max_connections_per_ip_overrides=overrides) as node:
        with contextlib.ExitStack() as opened:
            served = {}
            for source in ("127.0.0.2", "127.0.0.3", "127.0.0.4"):
                peers = [opened.enter_context(dial(node, source)) for _ in range(4)]
                served[source] = sum(is_served(peer) for peer in peers)
        assert served == {"127.0.0.2": 0, "127.0.0.3": 2, "127.0.0.4": 4}


def is_served(peer: socket.socket) -> bool:
    with contextlib.suppress(ConnectionError):
        peer.sendall(encode_request(ApiVersionsRequest(), 0, correlation_id=1))
        return bool(peer.recv(4))
    return False


def test_an_address_that_connects_without_end_delays_no_other(tmp_path: Path) -> None:
    """K8: max.connection.creation.rate; over it connections wait, then are refused."""
    stopped = threading.Event()

    def connect_without_end(node: RunningNode) -> None:
        while not stopped.is_set():
            with contextlib.suppress(OSError):
                dial(node, "127.0.0.2").close()

    with running(tmp_path, max_connection_creation_rate="40") as node:
        attack = threading.Thread(target=connect_without_end, args=(node,))
        with Bystander(node) as bystander:
            attack.start()
            try:
                refused = 'quipu_connections_refused_total{{limit="{}"}}'
                await_metric(node, refused.format("max.connection.creation.rate.per.ip"),
                             lambda count: count > 500)
                for _ in range(20):
                    with RawConnection(node.host, node.port) as late:
                        late.ask(ApiVersionsRequest(), 0)
                found = metrics(node)
                assert refused.format("max.connection.creation.rate") not in found
                assert found["quipu_connections_delayed_total"] > 0
            finally:
                stopped.set()
                attack.join()
        bystander.verdict()


def test_a_fetch_session_is_of_no_use_to_who_guesses_its_id(tmp_path: Path) -> None:
    """K8: nobody uses, steals or ends another's session; its owner notices nothing."""
    with (running(tmp_path) as node, RawConnection(node.host, node.port) as owner,
          RawConnection(node.host, node.port) as thief):
        first = owner.ask(fetch(0, epoch=0), FETCH_VERSION)
        assert isinstance(first, FetchResponse)
        assert first.session_id != 0
        for guess in (first.session_id, first.session_id + 1, 1, 2, 2**31 - 1):
            for epoch in (1, 2, 2**31 - 1):
                answer = thief.ask(fetch(0, guess, epoch), FETCH_VERSION)
                assert isinstance(answer, FetchResponse)
                assert answer.error_code == Code.FETCH_SESSION_ID_NOT_FOUND
            for epoch in (0, -1):
                thief.ask(fetch(0, guess, epoch), FETCH_VERSION)
        for epoch in (1, 2, 3):
            answer = owner.ask(FetchRequest(
                max_wait=0, min_bytes=1, max_bytes=1 << 20, session_id=first.session_id,
                session_epoch=epoch), FETCH_VERSION)
            assert isinstance(answer, FetchResponse)
            assert (answer.error_code, answer.session_id) == (0, first.session_id)

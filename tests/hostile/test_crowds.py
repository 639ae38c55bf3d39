"""Many connections, many requests, and peers that do not read their responses."""

import contextlib
import resource
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from quipu.wire.frame import encode_request
from quipu.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from quipu.wire.messages.k18_api_versions import ApiVersionsRequest
from tests.harness.node import RunningNode
from tests.harness.raw import RawConnection
from tests.hostile.bystander import PRODUCE_VERSION, TOPIC, Bystander, produce_request
from tests.hostile.conftest import MIB, anonymous_size

pytestmark = pytest.mark.xdist_group("hostile")  # one node for all
IDLE_CONNECTIONS = 5_000
IDLE_SIZE_MAX = 16 * 1024  # of the node's memory, for each connection that does nothing
FETCH_VERSION = 11


@pytest.fixture
def many_files() -> Iterator[int]:
    """Let this process open as many files as it may; give how many that leaves for sockets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield min(IDLE_CONNECTIONS, hard - 500)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_thousands_of_idle_connections(unharmed: RunningNode, many_files: int) -> None:
    """K8: 5,000 connections that do nothing cost little memory, and others are served."""
    before = anonymous_size(unharmed)
    with contextlib.ExitStack() as opened, Bystander(unharmed) as bystander:
        for _ in range(many_files):
            connection = RawConnection(unharmed.host, unharmed.port)
            opened.enter_context(connection)
        with RawConnection(unharmed.host, unharmed.port) as late:
            late.ask(ApiVersionsRequest(), 0)
        each = (anonymous_size(unharmed) - before) / many_files
        print(f"{many_files} idle connections, {each / 1024:.1f} KiB each")
        assert each < IDLE_SIZE_MAX
        connection.ask(ApiVersionsRequest(), 0)  # the last of them is served, too
    print(bystander.verdict())


def test_a_flood_of_requests_is_held_back(unharmed: RunningNode) -> None:
    """K8: the node stops reading a peer that sends requests without end and reads no responses."""
    frames = encode_request(ApiVersionsRequest(), 0, correlation_id=1) * 1000
    sent = 0
    with Bystander(unharmed) as bystander, RawConnection(unharmed.host, unharmed.port) as flood:
        flood.socket.settimeout(0.5)
        deadline = time.monotonic() + 3.0
        with contextlib.suppress(TimeoutError):
            while time.monotonic() < deadline:
                sent += flood.socket.send(frames[sent % len(frames) :])
        assert anonymous_size(unharmed) < 192 * MIB
    print(f"{sent / MIB:.1f} MiB of requests were taken; {bystander.verdict()}")
    assert sent < 64 * MIB, "the node reads on though its answers are not taken"


def test_consumers_that_take_nothing_cost_no_memory(unharmed: RunningNode) -> None:
    """K8: twenty peers ask for everything, again and again, and read nothing of it."""
    with RawConnection(unharmed.host, unharmed.port) as writer:
        for _ in range(32):
            writer.ask(produce_request(TOPIC, b"v" * (MIB - 200)), PRODUCE_VERSION)
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=64 * MIB)
    request = FetchRequest(max_wait=100, min_bytes=1, max_bytes=64 * MIB, session_epoch=-1,
                           topics=[FetchTopic(topic=TOPIC, partitions=[part])])
    frames = encode_request(request, FETCH_VERSION, correlation_id=1) * 50
    before = anonymous_size(unharmed)
    with contextlib.ExitStack() as opened, Bystander(unharmed) as bystander:
        for _ in range(20):
            peer = socket.create_connection((unharmed.host, unharmed.port))
            opened.callback(peer.close)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.sendall(frames)
        time.sleep(1.0)
        grown = anonymous_size(unharmed) - before
        print(f"20 stalled consumers: {grown / MIB:.1f} MiB")
        assert grown < 32 * MIB
    bystander.verdict()


def test_answers_come_in_the_order_of_the_requests(unharmed: RunningNode) -> None:
    """K2, K8: responses to pipelined requests come in order, also if last bytes come late."""
    with RawConnection(unharmed.host, unharmed.port) as connection:
        frames = b"".join(encode_request(ApiVersionsRequest(), 0, correlation_id=number)
                          for number in range(200))
        connection.send(frames[:-3])
        time.sleep(0.05)
        connection.send(frames[-3:])
        for number in range(200):
            assert connection.receive_frame()[:4] == struct.pack(">i", number)

"""Frames that lie about their length, or never end."""

import contextlib
import socket
import struct
import time

import pytest

from quipu.model.errors import Code
from quipu.wire.frame import encode_request
from quipu.wire.messages.k00_produce import ProduceResponse
from quipu.wire.messages.k18_api_versions import ApiVersionsRequest
from tests.harness.node import RunningNode
from tests.harness.raw import RawConnection
from tests.hostile.bystander import PRODUCE_VERSION, TOPIC, Bystander, produce_request
from tests.hostile.conftest import MIB, PARTIAL_SIZE_MAX, REQUEST_SIZE_MAX, anonymous_size

pytestmark = pytest.mark.xdist_group("hostile")  # one node for all
IMPOSSIBLE = [2**31 - 1, 2**31 - 4, REQUEST_SIZE_MAX + 1, -1, -2, -(2**31)]


@pytest.mark.parametrize("length", IMPOSSIBLE)
def test_an_impossible_length_closes_the_connection(unharmed: RunningNode, length: int) -> None:
    """K8: two gigabytes, negative or just above the limit: closed at once, with a line in the log,
    which says from where.
    """
    with Bystander(unharmed) as bystander, RawConnection(unharmed.host, unharmed.port) as liar:
        liar.send(struct.pack(">i", length) + b"x" * 64)
        assert liar.is_closed_by_peer()
        peer = f"127.0.0.1:{liar.socket.getsockname()[1]}"
    bystander.verdict()
    assert any(peer in line and str(length) in line for line in unharmed.log_text().splitlines())


def test_a_claimed_length_takes_no_memory(unharmed: RunningNode) -> None:
    """K8: 300 connections claim 100 MiB each; only what arrives may cost memory."""
    before = anonymous_size(unharmed)
    with contextlib.ExitStack() as opened, Bystander(unharmed) as bystander:
        for _ in range(300):
            connection = RawConnection(unharmed.host, unharmed.port)
            opened.enter_context(connection)
            connection.send(struct.pack(">i", REQUEST_SIZE_MAX) + b"x" * 1024)
        time.sleep(0.3)
        grown = anonymous_size(unharmed) - before
        assert grown < 300 * 128 * 1024, f"{grown / MIB:.1f} MiB"
    bystander.verdict()


def test_large_requests_in_part_stay_within_their_budget(unharmed: RunningNode) -> None:
    """K8: 64 connections push what would be 6 GiB; the node keeps to queued.max.request.bytes."""
    before, highest = anonymous_size(unharmed), 0
    sockets = []
    with Bystander(unharmed) as bystander:
        for _ in range(64):
            peer = socket.create_connection((unharmed.host, unharmed.port))
            peer.sendall(struct.pack(">i", REQUEST_SIZE_MAX))
            peer.setblocking(False)
            sockets.append(peer)
        deadline = time.monotonic() + 3.0
        while time.monotonic() < deadline:
            _push(sockets)
            highest = max(highest, anonymous_size(unharmed) - before)
    for peer in sockets:
        peer.close()
    bystander.verdict()
    print(f"largest growth {highest / MIB:.0f} MiB")
    assert highest < PARTIAL_SIZE_MAX + 64 * MIB


def _push(sockets: list[socket.socket]) -> None:
    for peer in list(sockets):
        try:
            peer.send(b"x" * 65536)
        except BlockingIOError:
            time.sleep(0.0005)
        except OSError:  # closed to make room
            sockets.remove(peer)
            peer.close()


def test_memory_of_large_requests_is_given_back(unharmed: RunningNode) -> None:
    """K2, K8: after the attackers have disconnected, a large request is received whole, and gets
    its response: that the batch exceeds max.message.bytes.
    """
    with RawConnection(unharmed.host, unharmed.port) as connection:
        response = connection.ask(produce_request(TOPIC, b"x" * 32 * MIB), PRODUCE_VERSION)
    assert isinstance(response, ProduceResponse)
    assert response.responses[0].partition_responses[0].error_code == Code.MESSAGE_TOO_LARGE


def test_trickling_connections_harm_no_one(unharmed: RunningNode) -> None:
    """K8: 200 slow-loris connections send a byte at a time, of lengths and of requests."""
    frame = encode_request(ApiVersionsRequest(), 0, correlation_id=1)
    with contextlib.ExitStack() as opened, Bystander(unharmed) as bystander:
        connections = [RawConnection(unharmed.host, unharmed.port) for _ in range(200)]
        for connection in connections:
            opened.enter_context(connection)
        for position in range(len(frame)):
            for connection in connections:
                connection.send(frame[position : position + 1])
            time.sleep(0.05)
        for connection in connections:  # slow is not wrong: they are answered
            assert connection.receive_frame()[:4] == struct.pack(">i", 1)
    bystander.verdict()


def test_half_closed_connections_are_answered_and_closed(unharmed: RunningNode) -> None:
    """K8: a peer that stops sending after a request gets its response; one that stops within a
    request is closed.
    """
    frame = encode_request(ApiVersionsRequest(), 0, correlation_id=7)
    with RawConnection(unharmed.host, unharmed.port) as connection:
        connection.send(frame)
        connection.socket.shutdown(socket.SHUT_WR)
        assert connection.receive_frame()[:4] == struct.pack(">i", 7)
        assert connection.is_closed_by_peer()
    with RawConnection(unharmed.host, unharmed.port) as connection:
        connection.send(frame[:-1])
        connection.socket.shutdown(socket.SHUT_WR)
        assert connection.is_closed_by_peer()

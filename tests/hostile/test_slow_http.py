"""Slow clients of the HTTP port, and floods of what gets a line in the log."""

import contextlib
import re
import socket
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from quipu.wire.frame import encode_request
from quipu.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from quipu.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from quipu.wire.messages.k22_init_producer_id import InitProducerIdRequest
from tests.harness.node import RunningNode
from tests.harness.raw import RawConnection
from tests.hostile.bystander import TOPIC, Bystander
from tests.hostile.scrape import metrics

pytestmark = pytest.mark.xdist_group("hostile-http")
SLOW = 600
PROBE_SECONDS_MAX = 5.0  # of a kubelet it is one; test machines are busy
FORGED = "2026-01-31T12:00:00.123Z ERROR   broker.node FORGED"
_LINE = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z (DEBUG|INFO|WARNING|ERROR) +\S+ .*|    .*")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    settings = {"group.max.count": "1", "offsets.topic.num.partitions": "1"}
    with RunningNode(tmp_path / "data", settings=settings) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic(TOPIC, num_partitions=1)])[TOPIC].result(30)
        yield running
        running.restart()
        assert probe(running) < PROBE_SECONDS_MAX


def probe(node: RunningNode) -> float:
    """Duration of the health probe; raises without a response."""
    started = time.monotonic()
    with urllib.request.urlopen(f"{node.http}/health/ready", timeout=20) as answer:
        assert answer.status == 200
    return time.monotonic() - started


def http_address(node: RunningNode) -> tuple[str, int]:
    host, _, port = node.http.removeprefix("http://").rpartition(":")
    return host, int(port)


def test_a_crowd_that_asks_slowly_costs_no_probe(node: RunningNode) -> None:
    """K8, K9: six hundred connections send a byte now and then; every probe gets its response."""
    address = http_address(node)
    with Bystander(node) as bystander, contextlib.ExitStack() as opened:
        slow = []
        for _ in range(SLOW):
            peer = socket.create_connection(address)
            opened.callback(peer.close)
            peer.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
            slow.append(peer)
        seconds = []
        for _ in range(10):
            for peer in slow:
                with contextlib.suppress(OSError):
                    peer.send(b"x")
            seconds.append(probe(node))
    print(f"probes took {max(seconds):.2f} s at most; {bystander.verdict()}")
    assert max(seconds) < PROBE_SECONDS_MAX
    assert metrics(node)['quipu_limit_refusals_total{limit="metrics.max.connections"}'] > 0


def test_a_crowd_that_takes_no_answer_costs_no_probe(node: RunningNode) -> None:
    """K8, K9: three hundred that ask for the metrics and read nothing of them."""
    address = http_address(node)
    with Bystander(node) as bystander, contextlib.ExitStack() as opened:
        for _ in range(300):
            peer = socket.socket()
            opened.callback(peer.close)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            peer.connect(address)
            peer.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        seconds = [probe(node) for _ in range(10)]
        assert metrics(node)["quipu_ready"] == 1
    print(f"probes took {max(seconds):.2f} s at most; {bystander.verdict()}")
    assert max(seconds) < PROBE_SECONDS_MAX


def bad_frames() -> Iterator[bytes]:
    """Requests that each get a line in the log, and a closed connection."""
    while True:
        yield b"\x7f\xff\xff\xff"
        yield b"\x00\x00\x00\x02ab"
        yield b"\x00\x00\x00\x10" + b"\x00\x03\x7f\xff" + b"\n" * 12
        yield b"\x00\x00\x00\x20" + b"\x00\x00\x00\x09" + b"\xff" * 28


def test_a_flood_of_bad_requests_is_a_few_lines(node: RunningNode) -> None:
    """K8: thousands of connections that break the protocol; the log stays short."""
    before = len(node.log_text())
    frames = bad_frames()
    count = 4000
    with Bystander(node) as bystander:
        for _ in range(count):
            with contextlib.suppress(OSError), RawConnection(node.host, node.port) as peer:
                peer.send(next(frames))
                peer.is_closed_by_peer()
    deadline = time.monotonic() + 15  # the node tells every few seconds what it left out
    while "more were left out of the log" not in node.log_text()[before:]:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    logged = node.log_text()[before:]
    lines = logged.splitlines()
    print(f"{count} bad requests: {len(lines)} lines, {len(logged)} bytes; {bystander.verdict()}")
    assert 4 <= len(lines) < count / 8
    assert len(logged) < count / 8 * 600
    found = metrics(node)
    closed = sum(found[f'quipu_connections_closed_total{{reason="{reason}"}}']
                 for reason in ("malformed", "bad_request"))
    assert closed >= count * 0.9  # counted all the same


def test_nobody_forges_a_line_of_the_log(node: RunningNode) -> None:
    """K8: names that clients choose hold line breaks, commands to terminals, and a megabyte."""
    name = f"x\n{FORGED}\r\n\x1b[2J\u2028{FORGED}" + "y" * 30_000
    commit = OffsetCommitRequest(group_id=name[:1000], topics=[OffsetCommitRequestTopic(
        name=TOPIC, partitions=[OffsetCommitRequestPartition(
            partition_index=0, committed_offset=1, committed_metadata="")])])
    before = len(node.log_text())
    with RawConnection(node.host, node.port) as peer:
        peer.ask(FindCoordinatorRequest(key="g"), 3)
        commit.group_id, evil = "kept", commit.group_id
        peer.ask(commit, 8)
        commit.group_id = evil
        for _ in range(50):
            peer.ask(commit, 8)  # refused: there may be one group
            peer.ask(InitProducerIdRequest(transactional_id=name, transaction_timeout=1), 1)
        peer.send(encode_request(InitProducerIdRequest(
            transactional_id=name, transaction_timeout=1), 1, correlation_id=1, client_id=name))
        time.sleep(0.2)
    lines = node.log_text()[before:].splitlines()
    assert any("FORGED" in line for line in lines), "what was sent is shown, escaped"
    assert not any(line.startswith(FORGED) for line in lines)
    assert all(_LINE.fullmatch(line) for line in lines)
    assert all(len(line) < 1000 for line in lines)
    assert len(lines) < 40

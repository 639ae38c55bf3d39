"""Too few file descriptors: for connections, for partitions, or for a while for anything."""

import contextlib
import resource
import socket
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from quipu.broker.handlers import SUPPORTED
from quipu.model.errors import Code
from quipu.wire.messages import REQUESTS
from quipu.wire.messages.k00_produce import ProduceResponse
from tests.cluster.test_disks import asked
from tests.harness.node import RunningNode
from tests.harness.raw import RawConnection
from tests.hostile.bystander import PRODUCE_VERSION, TOPIC, Bystander, produce_request

LIMIT = 400  # so 120 connections, and 120 files for logs
PARTITIONS = 200
SILENT = frozenset({0})  # an empty Produce has acks=0
STRANGERS = 600
# `quipu`, under another limit of descriptors.
PROGRAM = ("import resource, sys; from quipu.cli.main import main; "
           f"resource.setrlimit(resource.RLIMIT_NOFILE, ({LIMIT}, {LIMIT})); sys.exit(main())")


def node_of(tmp_path: Path, **settings: str) -> RunningNode:
    node = RunningNode(tmp_path / "data", settings={
        key.replace("_", "."): value for key, value in settings.items()})
    node.program = ["-c", PROGRAM]
    return node


def create(node: RunningNode, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(60)


def fill(node: RunningNode, rounds: int) -> None:
    """Write to every partition in turn; every record must be acknowledged."""
    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 0,
                         "message.timeout.ms": 60_000})
    failures: list[object] = []
    for _ in range(rounds):
        for partition in range(PARTITIONS):
            producer.produce("many", b"x" * 100, partition=partition,
                             on_delivery=lambda error, _: failures.append(error))
        producer.flush(60)
    assert len(failures) == rounds * PARTITIONS
    assert set(failures) == {None}


def open_files(node: RunningNode) -> int:
    return len(list(Path(f"/proc/{node.pid}/fd").iterdir()))


@pytest.mark.timeout(240)
def test_more_partitions_and_connections_than_descriptors(tmp_path: Path) -> None:
    """K8: connections are refused before logs lack anything; nothing fails, before or after."""
    node = node_of(tmp_path)
    with node:
        create(node, "many", PARTITIONS)
        create(node, TOPIC, 1)
        fill(node, 2)
        assert open_files(node) < LIMIT - 64
        with contextlib.ExitStack() as strangers, Bystander(node) as bystander:
            time.sleep(0.5)
            for _ in range(STRANGERS):
                with contextlib.suppress(OSError):
                    strangers.enter_context(socket.create_connection((node.host, node.port), 5))
            time.sleep(1)
            assert open_files(node) < LIMIT - 32
            code, text = asked(node.http + "/metrics")
            assert code == 200
            assert "quipu_partitions_failed 0" in text
            refused = next(line for line in text.splitlines()
                           if line.startswith('quipu_connections_refused_total{limit="'))
            assert float(refused.rpartition(" ")[2]) >= STRANGERS - LIMIT
        print(bystander.verdict())
        fill(node, 2)
        assert asked(node.http + "/health/ready")[0] == 200
        node.restart()
        fill(node, 1)
        assert "Too many open files" not in node.log_text()
        assert "Traceback" not in node.log_text()


@pytest.mark.timeout(240)
def test_no_descriptors_at_all_for_a_while(tmp_path: Path) -> None:
    """K8: whatever must be opened then is refused and tried again; no restart is needed."""
    node = node_of(tmp_path, log_segment_bytes="20000")
    with node, RawConnection(node.host, node.port) as raw:
        create(node, "t", 1)
        assert produced(raw, b"x") == 0
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (3, LIMIT))
        codes = {produced(raw, bytes(3000)) for _ in range(60)}
        assert codes == {0, Code.KAFKA_STORAGE_ERROR}
        assert produced(raw, bytes(3000)) == Code.KAFKA_STORAGE_ERROR  # it cannot roll
        time.sleep(7)  # the node's own notes fail too
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
        deadline = time.monotonic() + 30
        while produced(raw, bytes(3000)) != 0:
            assert time.monotonic() < deadline, node.log_text()
            time.sleep(0.2)
        assert {produced(raw, bytes(3000)) for _ in range(60)} == {0}
        text = asked(node.http + "/metrics")[1]
        assert "quipu_partitions_failed 0" in text
        assert "quipu_disk_refusals_total 0" not in text
        node.restart()
        assert "Traceback" not in node.log_text()


def produced(raw: RawConnection, value: bytes) -> int:
    response = raw.ask(produce_request("t", value), PRODUCE_VERSION)
    assert isinstance(response, ProduceResponse)
    return response.responses[0].partition_responses[0].error_code


@pytest.mark.timeout(240)
def test_every_api_answers_without_descriptors(tmp_path: Path) -> None:
    """K8: whatever is asked for the first time then; nothing is left to be read from files."""
    node = node_of(tmp_path)
    with node, RawConnection(node.host, node.port) as raw:
        create(node, "t", 1)
        assert produced(raw, b"x") == 0
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (3, LIMIT))
        for key, (_, version) in SUPPORTED.items():
            if key not in SILENT:
                raw.ask(REQUESTS[key](), min(version, REQUESTS[key].VERSIONS[-1]))
        assert produced(raw, b"x") == 0
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
        assert "Traceback" not in node.log_text()

"""Nodes that are started from files as Kafka's own brokers have them, and used by stock clients."""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    ResourceType,
)

from tests.cluster.test_listeners import round_trip, told
from tests.harness.node import environment
from tests.harness.ports import hold_port
from tests.harness.processes import LineProcess
from tests.harness.progress import wait_for

STOCK = """\
# A broker of Kafka 4 that is controller as well, as its first steps have one.
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:{controller}
listeners=PLAINTEXT://:{client},CONTROLLER://:{controller}
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:{client},CONTROLLER://localhost:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,\\
    SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL

num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600

log.dirs={logs}
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
metrics.listener=127.0.0.1:0
"""
WARNING = "settings have no effect here"
STOP_SECONDS_MAX = 30.0


@contextmanager
def started(path: Path) -> Iterator[LineProcess]:
    """`quipu start --config PATH`, until the block is left."""
    process = LineProcess([sys.executable, "-m", "quipu", "start", "--config", str(path)],
                          environment(), ends_with_parent=True)
    try:
        yield process
    finally:
        if process.runs:
            process.terminate(STOP_SECONDS_MAX)


def ready(process: LineProcess) -> None:
    def is_ready() -> bool:
        assert process.runs, process.tail()
        return "quipu ready" in process.tail()

    wait_for(is_ready, what=process.tail)


def alter(admin: AdminClient, resource: ConfigResource, values: Mapping[str, str]) -> None:
    """Set several settings in one request; raises what the broker says."""
    for name, value in values.items():
        resource.add_incremental_config(
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(30)


def described(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    (done,) = admin.describe_configs([ConfigResource(kind, name)]).values()
    found: dict[str, ConfigEntry] = done.result(30)
    return found


@pytest.fixture
def stock(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[LineProcess, str]]:
    """A node from a stock file, and its address."""
    client, controller = hold_port(request), hold_port(request)
    path = tmp_path / "server.properties"
    path.write_text(STOCK.format(client=client, controller=controller, logs=tmp_path / "logs"))
    with started(path) as process:
        ready(process)
        yield process, f"localhost:{client}"


@pytest.mark.timeout(180)
def test_a_stock_file_of_kafka_starts_a_node(stock: tuple[LineProcess, str]) -> None:
    """K1, K5: clients get what the file advertises; one warning names what has no effect."""
    process, bootstrap = stock

    assert told(bootstrap) == {bootstrap}
    round_trip(bootstrap, "t", [f"value-{number}" for number in range(10)])
    (warning,) = [line for line in process.take_lines() if WARNING in line]
    for name in ("num.io.threads", "socket.send.buffer.bytes", "transaction.state.log.min.isr"):
        assert name in warning
    assert "log.retention.hours" not in warning
    assert "docs/reference/kafka-settings.md" in warning


@pytest.mark.timeout(180)
def test_dynamic_settings_of_kafka_are_accepted_with_one_warning(
    stock: tuple[LineProcess, str]
) -> None:
    """K1, K5: one name without effect does not fail a command; descriptions show what was set."""
    process, bootstrap = stock
    admin = AdminClient({"bootstrap.servers": bootstrap})
    before = described(admin, ResourceType.BROKER, "1")
    assert before["num.io.threads"].value == "8"
    assert ConfigSource(before["num.io.threads"].source) is ConfigSource.STATIC_BROKER_CONFIG
    assert ConfigSource(before["log.cleaner.threads"].source) is ConfigSource.DEFAULT_CONFIG
    process.take_lines()

    alter(admin, ConfigResource(ResourceType.BROKER, "1"), {
        "log.cleaner.threads": "2", "num.io.threads": "16",
        "unclean.leader.election.enable": "true", "log.retention.ms": "7200000"})

    after = described(admin, ResourceType.BROKER, "1")
    for name, value in (("log.cleaner.threads", "2"), ("num.io.threads", "16"),
                        ("log.retention.ms", "7200000")):
        assert after[name].value == value
        assert ConfigSource(after[name].source) is ConfigSource.DYNAMIC_BROKER_CONFIG
        assert not after[name].is_read_only
    (warning,) = [line for line in process.take_lines() if "have no effect" in line]
    assert "log.cleaner.threads" in warning
    assert "log.retention.ms" not in warning
    for name, value, why in (
            ("queued.max.requests", "5", "cannot be changed while the broker runs"),
            ("ssl.keystore.location", "/k", "this version has no TLS"),
            ("num.io.threads", "none", "must be an integer from 1")):
        with pytest.raises(KafkaException, match=why):
            alter(admin, ConfigResource(ResourceType.BROKER, "1"), {name: value})


@pytest.mark.timeout(180)
def test_a_limit_of_connections_changes_while_the_node_runs(
    stock: tuple[LineProcess, str]
) -> None:
    """K5, K8: max.connections is one of Kafka's dynamic settings, and is one here."""
    _, bootstrap = stock
    admin = AdminClient({"bootstrap.servers": bootstrap})
    alter(admin, ConfigResource(ResourceType.BROKER, "1"), {"max.connections": "2"})
    others = [AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}) for _ in range(3)]

    def reach_all() -> None:
        for each in others:
            each.list_topics(timeout=2)

    with pytest.raises(KafkaException):
        reach_all()

    alter(admin, ConfigResource(ResourceType.BROKER, "1"), {"max.connections": "2147483647"})
    assert described(admin, ResourceType.BROKER, "1")["max.connections"].value == "10000"
    for each in others:
        assert each.list_topics(timeout=30).brokers


@pytest.mark.timeout(300)
def test_three_files_of_a_static_quorum_form_a_cluster(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """K1, V1, V5: the controller listener is where nodes meet; a client by OUTSIDE gets OUTSIDE."""
    ports = {number: [hold_port(request) for _ in range(3)] for number in (1, 2, 3)}
    voters = ",".join(f"{number}@127.0.0.1:{own[2]}" for number, own in ports.items())
    with ExitStack() as stack:
        processes = []
        for number, (inside, outside, controller) in ports.items():
            path = tmp_path / f"server-{number}.properties"
            path.write_text(f"""\
process.roles=broker,controller
node.id={number}
controller.quorum.voters={voters}
listeners=INSIDE://127.0.0.1:{inside},OUTSIDE://:{outside},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=INSIDE://127.0.0.1:{inside},OUTSIDE://localhost:{outside}
inter.broker.listener.name=INSIDE
controller.listener.names=CONTROLLER
listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={tmp_path}/logs-{number}
metrics.listener=127.0.0.1:0
""")
            processes.append(stack.enter_context(started(path)))
        for process in processes:
            ready(process)
        insides = {f"127.0.0.1:{own[0]}" for own in ports.values()}
        outsides = {f"localhost:{own[1]}" for own in ports.values()}
        admin = AdminClient({"bootstrap.servers": ",".join(insides)})
        deadline = time.monotonic() + 60
        while True:
            try:
                admin.create_topics([NewTopic("t", 3, 3)])["t"].result(30)
                break
            except KafkaException:
                assert time.monotonic() < deadline
                time.sleep(0.2)
        for wanted in (insides, outsides):
            for bootstrap in sorted(wanted):
                assert told(bootstrap) == wanted
        replicas = admin.list_topics("t", timeout=30).topics["t"].partitions
        assert all(sorted(each.replicas) == [1, 2, 3] for each in replicas.values())
        round_trip(min(outsides), "t", [f"value-{number}" for number in range(20)])

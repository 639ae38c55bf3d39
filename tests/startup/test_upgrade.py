"""Data directories of the version before there were chains: a broker of one node.

`tests/fixtures/single_node.tar.gz` was made by the code of commit 72138b0 in another checkout:

    git worktree add OLD 72138b0
    python -m tests.fixtures.make_single_node OLD tests/fixtures/single_node.tar.gz
"""

import json
import tarfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from quipu.model.errors import Code
from tests.fixtures.make_single_node import (
    ALTERED,
    BATCHES,
    COMMITTED,
    CONFIGS,
    GROUP,
    PARTITIONS,
    PER_BATCH,
    TIMESTAMP,
    TOPIC,
    batch,
    produce_request,
)
from tests.harness.cluster import QUICK
from tests.harness.command import run_quipu
from tests.harness.node import RunningNode
from tests.harness.ports import hold_port
from tests.harness.raw import RawConnection

ARCHIVE = Path(__file__).parents[1] / "fixtures" / "single_node.tar.gz"
FOR_EVER = {  # the archive grows old
    "offsets.retention.minutes": str(2**31 - 1), "producer.id.expiration.ms": str(2**31 - 1),
}
WAIT_SECONDS_MAX = 30.0
RECORDS = BATCHES * PER_BATCH  # of each partition
NARROWED = {"segment.bytes": "16384"}  # 2048 was allowed: it is read as the nearest that is


class Expected(NamedTuple):
    """What the old node told."""

    producer_id: int
    producer_epoch: int
    cluster_id: str


def unpack(path: Path) -> Expected:
    """All that is in the archive."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(path, filter="data")
    return Expected(**json.loads((path / "expected.json").read_text()))


def read_all(bootstrap: str, count: int) -> list[Message]:
    """`count` records of all partitions."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused",
                         "enable.auto.commit": False, "auto.offset.reset": "error"})
    consumer.assign([TopicPartition(TOPIC, each, 0) for each in range(PARTITIONS)])
    found: list[Message] = []
    while len(found) < count:
        more = consumer.consume(count - len(found), timeout=WAIT_SECONDS_MAX)
        assert more, f"{len(found)} of {count}"
        found += more
    consumer.close()
    return found


def assert_all_there(bootstrap: str, expected: Expected) -> None:
    """Topics, configs, records, and what the group has committed."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    listed = admin.list_topics(timeout=10)
    assert listed.cluster_id == expected.cluster_id
    assert {name for name in listed.topics if not name.startswith("__")} == {TOPIC}
    assert len(listed.topics[TOPIC].partitions) == PARTITIONS
    resource = ConfigResource(ResourceType.TOPIC, TOPIC)
    configs = admin.describe_configs([resource])[resource].result(10)
    assert {**CONFIGS, **NARROWED, ALTERED[0]: ALTERED[1]}.items() <= {
        name: entry.value for name, entry in configs.items()}.items()
    for partition in range(PARTITIONS):
        found = [each for each in read_all(bootstrap, PARTITIONS * RECORDS)
                 if each.partition() == partition]
        assert [(each.offset(), each.value(), each.timestamp()[1], each.headers())
                for each in found] == [
            (index, f"{partition}-{index}".encode(), TIMESTAMP + 1000 * index,
             [("n", str(index).encode())]) for index in range(RECORDS)]
    assert committed(bootstrap) == COMMITTED
    admin = AdminClient({"bootstrap.servers": bootstrap})  # that knows who is there now
    assert [group.group_id for group in admin.list_consumer_groups().result(10).valid] == [GROUP]


def committed(bootstrap: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    asked = [TopicPartition(TOPIC, each) for each in range(PARTITIONS)]
    found = {each.partition: each.offset for each in consumer.committed(asked, timeout=10)}
    consumer.close()
    return found


def assert_goes_on(node: RunningNode, expected: Expected, partition: int) -> None:
    """The old producer's last batch is known, its next is taken, and one too far is not."""
    with RawConnection(node.host, node.port) as raw:
        for number, answer in ((BATCHES - 1, (Code.NONE, RECORDS - PER_BATCH)),
                               (BATCHES + 1, (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)),
                               (BATCHES, (Code.NONE, RECORDS)),
                               (BATCHES, (Code.NONE, RECORDS))):
            data = batch(partition, number, expected.producer_id, expected.producer_epoch)
            told: Any = raw.ask(produce_request(partition, data), 8)
            (part,) = told.responses[0].partition_responses
            assert (part.error_code, part.base_offset) == answer, number


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_directory_of_the_previous_version_opens_with_all_that_it_has(
    tmp_path: Path, how: str
) -> None:
    """V2, K3: records, times, configs, offsets and producers are there, after a restart too; the
    node is a chain of one, and its log is sound.
    """
    expected = unpack(tmp_path)
    with RunningNode(tmp_path / how, settings=FOR_EVER) as node:
        assert_all_there(node.bootstrap, expected)
        assert_goes_on(node, expected, partition=0)
        node.restart()
        read_all(node.bootstrap, PARTITIONS * RECORDS + PER_BATCH)
        node.kill()
        node.start()
        read_all(node.bootstrap, PARTITIONS * RECORDS + PER_BATCH)
        assert committed(node.bootstrap) == COMMITTED
        assert_goes_on(node, expected, partition=1)
        chain = json.loads(run_quipu("chain", "describe", "--json", "--bootstrap",
                                     node.bootstrap).out)
        assert [each["state"] for each in chain["members"]] == ["serving"]
        assert node.stop() == 0
    shown = run_quipu("log", "show", str(tmp_path / how))
    assert shown.code == 0, shown.out[-2000:] + shown.err


def a_cluster(path: Path, first: Path) -> list[RunningNode]:
    """Three nodes of the chain `quipu`; the first has the old directory, and votes alone."""
    nodes = [
        RunningNode(
            first if number == 0 else path / f"quipu-{number}",
            arguments=["--name", f"quipu-{number}"], settings={**QUICK, **FOR_EVER})
        for number in range(3)
    ]
    addresses = [f"127.0.0.1:{hold_port(node)}" for node in nodes]
    for node, address in zip(nodes, addresses, strict=True):
        node.settings["peer.listener"] = address
        node.settings["controller.quorum.voters"] = f"1@{addresses[0]}"
    return nodes


def await_serving(node: RunningNode, count: int) -> None:
    """Wait until so many members of the chain serve, as `node` tells."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while True:
        told = run_quipu("chain", "describe", "--json", "--bootstrap", node.bootstrap)
        states = [each["state"] for each in json.loads(told.out)["members"]]
        if states.count("serving") == count:
            return
        assert time.monotonic() < deadline, states


def quorum(node: RunningNode, *words: str) -> str:
    """`quipu quorum`; gives what it prints."""
    done = run_quipu("quorum", *words, "--bootstrap", node.bootstrap)
    assert done.code == 0, done.err
    return done.out


def roles(node: RunningNode) -> dict[int, str]:
    """Who votes; the leader is one of the voters."""
    listed = map(json.loads, quorum(node, "list", "--json").splitlines())
    return {each["id"]: each["role"].replace("leader", "voter") for each in listed}


@pytest.mark.timeout(180)
@pytest.mark.xdist_group("cluster")
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_node_of_the_previous_version_becomes_one_of_three(tmp_path: Path, how: str) -> None:
    """V2, V7, V16, K6: its chain is made, or extended if it had been alone with the new version;
    the others become voters; then it is killed, and everything is there and goes on without it.
    """
    expected = unpack(tmp_path)
    if how == "stopped":  # it has been used with the new version for a while
        with RunningNode(tmp_path / how, settings=FOR_EVER) as node:
            assert node.stop() == 0
    nodes = a_cluster(tmp_path, tmp_path / how)
    try:
        for node in nodes:
            node.start()
        words = [["create", "quipu"]] if how == "killed" else [
            ["extend", "quipu", "quipu-1"], ["extend", "quipu", "quipu-2"]]
        for each in words:
            done = run_quipu("chain", *each, "--wait", "30", "--bootstrap", nodes[0].bootstrap)
            assert done.code == 0, done.err + "".join(node.log_text()[-3000:] for node in nodes)
        quorum(nodes[0], "add", "2")
        quorum(nodes[1], "add", "3")
        assert roles(nodes[2]) == dict.fromkeys((1, 2, 3), "voter")
        assert_all_there(nodes[2].bootstrap, expected)
        nodes[0].kill()
        assert_all_there(f"{nodes[1].bootstrap},{nodes[2].bootstrap}", expected)
        nodes[0].start()
        await_serving(nodes[1], 3)
        assert_goes_on(nodes[1], expected, partition=0)  # it leads now
        for node in nodes:
            node.kill()
        for node in nodes:  # the voters are those that were added, whatever the settings say
            node.launch()
        for node in nodes:
            node.await_ready()
        await_serving(nodes[2], 3)
        read_all(nodes[2].bootstrap, PARTITIONS * RECORDS + PER_BATCH)
        assert_goes_on(nodes[1], expected, partition=1)
        quorum(nodes[2], "remove", "1")
        assert roles(nodes[0]) == {1: "observer", 2: "voter", 3: "voter"}
    finally:
        for node in nodes:
            node.kill()

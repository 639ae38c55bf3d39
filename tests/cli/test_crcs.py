"""A byte that has changed on disk is never shown as good, by no command that reads records."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient

from quipu.client.errors import BrokerRefused
from quipu.client.ranges import Range
from quipu.client.settings import client_settings
from quipu.pipeline.reading.loop import read_ranges
from quipu.pipeline.records.batches import CorruptRecords, WantedColumns
from tests.harness.command import Result, run_quipu
from tests.harness.node import RunningNode

pytestmark = pytest.mark.xdist_group("cli-crcs")
GOOD, BAD = b"the right value", b"the wrong value"


def segment(node: RunningNode, topic: str) -> Path:
    (path,) = node.directory.glob(f"{topic}-0.*/*.log")
    return path


def flip(node: RunningNode, topic: str) -> None:
    """Change the second of three batches where it lies, header and checksums untouched."""
    path = segment(node, topic)
    data = path.read_bytes()
    place = data.index(GOOD, data.index(GOOD) + 1)
    with path.open("r+b") as file:
        file.seek(place)
        file.write(BAD)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A node with a topic for every door, each with a damaged batch between two good ones."""
    with RunningNode(tmp_path_factory.mktemp("crcs") / "data") as running:
        producer = Producer({"bootstrap.servers": running.bootstrap})
        for topic in ("consume", "group", "dirty", "log", "pipeline"):
            for number in range(3):  # a batch each
                producer.produce(topic, b"%d %s" % (number, GOOD))
                assert producer.flush(30) == 0
            flip(running, topic)
        yield running


TOLD = ("CRC", "checksum", "INVALID_MSG", "CORRUPT_MESSAGE", "KAFKA_STORAGE_ERROR")


@pytest.fixture(params=["while it runs", "after a restart"])
def damaged(node: RunningNode, request: pytest.FixtureRequest) -> RunningNode:
    if request.param == "after a restart":
        assert node.stop() == 0
        node.start()
    return node


def assert_not_shown(done: Result) -> None:
    """The good record before the damage is shown, the damaged one is not, and it is said: by the
    client, or by the node, which looks at what it had before it was started.
    """
    assert done.code != 0, done.out
    assert BAD.decode() not in done.out
    assert f"0 {GOOD.decode()}" in done.out
    assert any(word in done.err for word in TOLD), done.err


def test_consume_checks(damaged: RunningNode) -> None:
    """K2, T12: a reader without a group."""
    assert_not_shown(run_quipu("consume", "consume", "--exit", "-b", damaged.bootstrap))


def test_consume_as_a_group_checks_and_does_not_commit_beyond(damaged: RunningNode) -> None:
    """K2, T12: what was shown is committed, and no more."""
    name = f"g{damaged.pid}"
    done = run_quipu("consume", "group", "--group", name, "--exit", "-b", damaged.bootstrap)
    assert_not_shown(done)
    admin = AdminClient({"bootstrap.servers": damaged.bootstrap})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)])
    (part,) = asked[name].result(30).topic_partitions
    assert part.offset == 1


def test_a_dirty_read_checks(damaged: RunningNode) -> None:
    """V3, T12: no client library looks for us there."""
    assert_not_shown(run_quipu("consume", "dirty", "--dirty", "--exit", "-b", damaged.bootstrap))


@pytest.mark.parametrize("words", [(), ("--headers-only",)], ids=["all", "headers only"])
def test_a_damaged_record_is_marked_in_the_log(node: RunningNode, words: tuple[str, ...]) -> None:
    """T12: `quipu log show --records` shows what is there, and says with every record that it is
    not what was written.
    """
    path = str(segment(node, "log").parent)
    done = run_quipu("log", "show", path, "--records", "--json", *words)
    rows = [json.loads(line) for line in done.out.splitlines()]
    records = {row["value"]: row.get("fault") for row in rows
               if row["kind"] == "record" and "offset" in row}
    assert records == {f"0 {GOOD.decode()}": None, f"1 {BAD.decode()}": "bad body checksum",
                       f"2 {GOOD.decode()}": None}
    if not words:
        assert done.code != 0


def test_the_pipelines_reader_checks(damaged: RunningNode) -> None:
    """I15, T12: the damage is told with its offset, after what was good."""
    settings = client_settings({
        "bootstrap.servers": damaged.bootstrap,
        "default.api.timeout.ms": "5000"})  # it asks again for so long: another replica may be well
    values: list[bytes] = []
    reading = read_ranges(settings, [Range("pipeline", 0, 0, 3)], WantedColumns())
    with pytest.raises((CorruptRecords, BrokerRefused)) as raised:
        values.extend(value for read in reading for value in read.batch.column("value").to_pylist())
    assert getattr(raised.value, "offset", 1) == 1
    assert values == [b"0 " + GOOD]

"""Where sinks write: each version once, also when it is written twice."""

import threading
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, TopicPartition
from deltalake import DeltaTable

from quipu.pipeline.sinks import delta, kafka
from quipu.pipeline.sinks.delta import DeltaTarget
from quipu.pipeline.sinks.kafka import KafkaTarget, json_of
from quipu.pipeline.sinks.parquet import ParquetTarget
from quipu.pipeline.sinks.producer import NotWritten
from quipu.pipeline.views.changes import ViewChange, with_diff
from tests.harness.node import RunningNode
from tests.harness.progress import wait_for
from tests.harness.slow_way import SlowWay
from tests.pipeline.spark.broker import Broker

pytestmark = pytest.mark.timeout(900)  # for what hangs: waits are by progress

ROW_COUNT = 20_000
ROWS = pa.schema([("id", pa.string()), ("n", pa.int64())])


def step(version: int, *changes: tuple[int, str, int], schema: pa.Schema = ROWS) -> ViewChange:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist(
            [{"id": key, "n": n, "m": n, "#diff": diff} for diff, key, n in changes],
            schema=with_diff(schema),
        )
    return ViewChange(version, version == 0, schema, batches())


def read_parquet(folder: Path) -> list[dict[str, object]]:
    tables = [pq.read_table(path) for path in sorted(folder.glob("*.parquet"))]
    return [row for table in tables for row in table.to_pylist()]


def test_parquet_has_each_version_once(tmp_path: Path) -> None:
    """I11: a version that is written again after a crash is there once; pipeline.S1."""
    target = ParquetTarget("s", tmp_path, only_grows=True)
    assert target.position() is None

    target.write(step(0, (1, "a", 1)))
    target.write(step(1, (1, "b", 2), (1, "c", 3)))
    target.write(step(1, (1, "b", 2), (1, "c", 3)))

    assert ParquetTarget("s", tmp_path, only_grows=True).position() == 1
    assert read_parquet(tmp_path) == [{"id": "a", "n": 1}, {"id": "b", "n": 2}, {"id": "c", "n": 3}]


def test_parquet_tells_what_came_and_what_went(tmp_path: Path) -> None:
    """I13: of a view that takes rows back, the files are its changelog."""
    target = ParquetTarget("s", tmp_path, only_grows=False)

    target.write(step(0, (1, "a", 1)))
    target.write(step(3, (-1, "a", 1), (1, "a", 2)))

    assert [(row["_version"], row["_diff"], row["id"], row["n"])
            for row in read_parquet(tmp_path)] == [(0, 1, "a", 1), (3, -1, "a", 1), (3, 1, "a", 2)]


def test_delta_appends_and_adds_columns(tmp_path: Path) -> None:
    """I11, I13: the table says which version it has, and learns new columns."""
    uri = str(tmp_path / "t")
    target = DeltaTarget("s", uri, only_grows=True, options={})
    assert target.position() is None

    target.write(step(0, (1, "a", 1)))
    target.write(step(4, (1, "b", 2), schema=ROWS.append(pa.field("m", pa.int64()))))

    assert DeltaTarget("s", uri, only_grows=True, options={}).position() == 4
    rows = DeltaTable(uri).to_pyarrow_table().sort_by("id").to_pylist()
    assert rows == [{"id": "a", "n": 1, "m": None}, {"id": "b", "n": 2, "m": 2}]


def test_delta_takes_away_what_nobody_reads_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I11: of versions that were replaced, as soon as the table's retention is over."""
    monkeypatch.setattr(delta, "VACUUM_EVERY", 3)
    uri = str(tmp_path / "table")
    target = DeltaTarget("s", uri, only_grows=False, options={})
    target.write(step(1, (1, "a", 1)))
    DeltaTable(uri).alter.set_table_properties(
        {"delta.deletedFileRetentionDuration": "interval 0 seconds"})
    target.write(step(2, (1, "b", 2)))
    assert len(list((tmp_path / "table").glob("*.parquet"))) == 2
    target.write(step(3, (1, "c", 3)))

    assert len(list((tmp_path / "table").glob("*.parquet"))) == 1
    assert DeltaTable(uri).to_pyarrow_table().to_pylist() == [{"id": "c", "n": 3}]


def test_delta_replaces_what_takes_rows_back(tmp_path: Path) -> None:
    """I13: readers see one version of the view, whole."""
    uri = str(tmp_path / "t")
    target = DeltaTarget("s", uri, only_grows=False, options={})
    assert target.wants_snapshots

    target.write(step(0, (1, "a", 1), (1, "b", 1)))
    target.write(step(1, (1, "b", 7)))

    assert DeltaTable(uri).to_pyarrow_table().to_pylist() == [{"id": "b", "n": 7}]


def consumed(broker: Broker, topic: str, count: int) -> list[tuple[bytes | None, object]]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": f"reads-{topic}",
                         "auto.offset.reset": "earliest", "enable.auto.commit": False})
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    found: list[tuple[bytes | None, object]] = []
    while len(found) < count:
        (message,) = consumer.consume(1, 30) or [None]
        assert message is not None, found
        assert message.error() is None
        value = message.value()
        found.append((message.key(), None if value is None else orjson.loads(value)))
    consumer.close()
    return found


def kafka_target(broker: Broker, topic: str, checkpoint: Path, *key: str) -> KafkaTarget:
    settings = {"bootstrap.servers": broker.bootstrap}
    return KafkaTarget("s", topic, key=key, settings=settings, checkpoint=checkpoint)


def test_kafka_has_the_newest_row_of_a_key_and_nulls_for_those_gone(
    broker: Broker, tmp_path: Path
) -> None:
    """I13: the topic is the view, for consumers that know upserts."""
    topic = broker.topic()
    target = kafka_target(broker, topic, tmp_path / "mark", "id")
    assert target.position() is None

    target.write(step(0, (1, "a", 1), (1, "b", 2)))
    target.write(step(1, (-1, "a", 1), (1, "a", 5), (-1, "b", 2)))

    assert target.position() == 1
    assert consumed(broker, topic, 4) == [
        (b"a", {"id": "a", "n": 1}), (b"b", {"id": "b", "n": 2}), (b"a", {"id": "a", "n": 5}),
        (b"b", None),
    ]


def test_kafka_writes_only_what_a_crash_left_out(broker: Broker, tmp_path: Path) -> None:
    """I11: whatever part of a version is there already, in the end all is once; pipeline.S1."""
    topic = broker.topic(partitions=2)
    mark = tmp_path / "mark"
    target = kafka_target(broker, topic, mark, "id")
    target.write(step(0, (1, "z", 0)))
    before = mark.read_text()
    changes = [(1, letter, 1) for letter in "abcdefg"]
    target.write(step(1, *changes[:4]))  # as much as was written before the crash

    mark.write_text(before)
    kafka_target(broker, topic, mark, "id").write(step(1, *changes))
    kafka_target(broker, topic, mark, "id").write(step(2, (1, "y", 0)))

    keys = [key for key, _ in consumed(broker, topic, 9)]
    assert sorted(key for key in keys if key) == [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"y",
                                                  b"z"]


class Copy(NamedTuple):
    """What a topic has."""

    once: Counter[tuple[bytes | None, bytes, object]]  # key, value and version of each message
    rows: dict[bytes | None, object]  # the newest of each key


def copy_of(bootstrap: str, topic: str) -> Copy:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "copies"})
    once: Counter[tuple[bytes | None, bytes, object]] = Counter()
    rows: dict[bytes | None, object] = {}
    for number in consumer.list_topics(topic, timeout=30).topics[topic].partitions:
        where = TopicPartition(topic, number, 0)
        _, end = consumer.get_watermark_offsets(where, timeout=30)
        consumer.assign([where])
        seen = 0
        while seen < end:
            for message in consumer.consume(1_000, 0.2):
                assert message.error() is None
                value = message.value()
                once[message.key(), value or b"", str(message.headers())] += 1
                rows.pop(message.key(), None)
                if value is not None:
                    rows[message.key()] = orjson.loads(value)["n"]
                seen = message.offset() + 1
    consumer.close()
    return Copy(once, rows)


def test_kafka_has_each_message_once_although_the_broker_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I11: a broker is killed in the middle of a version, and started again."""
    monkeypatch.setattr(kafka, "FLUSH_SECONDS", 0.3)
    failed = threading.Event()
    with RunningNode(tmp_path / "data") as node:
        topic = Broker(node.bootstrap).topic()
        settings = {"bootstrap.servers": node.bootstrap}
        target = KafkaTarget(
            "s", topic, key=("id",), checkpoint=tmp_path / "mark", settings=settings)
        watcher, where = Consumer({**settings, "group.id": "g"}), TopicPartition(topic, 0)

        def harm() -> None:
            wait_for(lambda: watcher.get_watermark_offsets(where, timeout=30)[1] > 0, pause=0)
            node.kill()
            failed.wait(3)
            node.start()

        harming = threading.Thread(target=harm)
        harming.start()
        written(target, step(0, *((1, str(n), 0) for n in range(ROW_COUNT))), failed)
        harming.join()
        written(target, step(1, (-1, "7", 0), (1, "7", 1), (-1, "8", 0)), failed)
        found = copy_of(node.bootstrap, topic)

    assert set(found.once.values()) == {1}
    assert len(found.once) == ROW_COUNT + 2
    assert found.rows == {str(n).encode(): int(n == 7) for n in range(ROW_COUNT) if n != 8}


def test_kafka_has_each_message_once_although_some_come_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I11: what was sent before a flush failed reaches the broker after it was sent again.

    The same producer has sent it both times, on two connections: the broker recognizes it.
    """
    monkeypatch.setattr(kafka, "FLUSH_SECONDS", 0.3)
    failed = threading.Event()
    with SlowWay() as way, RunningNode(
        tmp_path / "data", settings={"advertised.listeners": way.address}
    ) as node:
        way.target = node.port
        topic = Broker(way.address).topic()
        settings = {"bootstrap.servers": way.address, "socket.timeout.ms": "1000"}
        target = KafkaTarget(
            "s", topic, key=("id",), checkpoint=tmp_path / "mark", settings=settings)
        target.write(step(0, (1, "a", 0), (1, "b", 0)))
        late = step(1, (-1, "a", 0), (1, "a", 1), (-1, "b", 0))

        way.hold()  # whatever the producer sends now
        written(target, late, failed)
        way.release()
        target.write(step(2, (1, "c", 2)))
        found = copy_of(way.address, topic)

    assert failed.is_set()
    assert set(found.once.values()) == {1}
    assert found.rows == {b"a": 1, b"c": 2}


def written(target: KafkaTarget, step: ViewChange, failed: threading.Event) -> None:
    """Write a version, as often as it takes; a step's rows are read once."""
    while target.position() != step.version:
        try:
            target.write(step)
        except NotWritten:
            failed.set()


def test_kafka_says_what_a_broker_does_not_take(broker: Broker, tmp_path: Path) -> None:
    """I11, I19: the error names the topic and the reason; the rest is written once."""
    topic = broker.topic()
    settings = {"bootstrap.servers": broker.bootstrap, "message.max.bytes": "1000"}
    target = KafkaTarget("s", topic, key=("id",), checkpoint=tmp_path / "mark", settings=settings)
    target.write(step(0, (1, "a", 1)))

    for _ in range(2):
        with pytest.raises(NotWritten, match=f"topic {topic}: .*too large"):
            target.write(step(1, (1, "b", 1), (1, "x" * 2000, 1)))
    kafka_target(broker, topic, tmp_path / "mark", "id").write(
        step(1, (1, "b", 1), (1, "x" * 2000, 1)))

    assert [key for key, _ in consumed(broker, topic, 3)] == [b"a", b"b", b"x" * 2000]


@pytest.mark.parametrize("is_running", [True, False])
def test_kafka_writes_no_changes_to_a_topic_that_was_created_anew(
    broker: Broker, tmp_path: Path, *, is_running: bool
) -> None:
    """I11, I15: changes without the rows that they change would mislead; another sink begins."""
    topic = broker.topic(partitions=2)
    target = kafka_target(broker, topic, tmp_path / "mark", "id")
    target.write(step(0, (1, "a", 1), (1, "b", 2)))
    broker.delete(topic)
    broker.topic(name=topic, partitions=1)
    if not is_running:
        target.close()
        target = kafka_target(broker, topic, tmp_path / "mark", "id")

    for _ in range(2):  # it stays an error
        with pytest.raises(NotWritten, match=rf"topic {topic} was deleted and created anew .*DROP"):
            target.write(step(1, (-1, "a", 1), (1, "a", 2)))
    assert target.position() == 0
    kafka_target(broker, topic, tmp_path / "other", "id").write(step(1, (1, "a", 2), (1, "b", 2)))

    assert sorted(key for key, _ in consumed(broker, topic, 2) if key) == [b"a", b"b"]
    assert sum(copy_of(broker.bootstrap, topic).once.values()) == 2


def test_kafka_goes_on_from_a_mark_without_an_id(broker: Broker, tmp_path: Path) -> None:
    """I11: as Quipu 0.3 wrote it; with the next version it has one."""
    topic, mark = broker.topic(), tmp_path / "mark"
    kafka_target(broker, topic, mark, "id").write(step(0, (1, "a", 1)))
    before = orjson.loads(mark.read_bytes())
    mark.write_bytes(orjson.dumps({"version": 0, "ends": before["ends"]}))

    kafka_target(broker, topic, mark, "id").write(step(1, (1, "b", 2)))

    assert orjson.loads(mark.read_bytes())["topic_id"] == before["topic_id"]
    assert [key for key, _ in consumed(broker, topic, 2)] == [b"a", b"b"]


def test_json_of_what_json_has_no_word_for() -> None:
    """I13: values that JSON does not know are written so that they can be read back."""
    assert json_of({"n": Decimal("1.50"), "b": b"\x00\xff"}) == b'{"n":1.50,"b":"AP8="}'

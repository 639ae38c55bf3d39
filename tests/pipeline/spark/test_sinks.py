"""Where sinks write: each version once, also when it is written twice."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, TopicPartition
from deltalake import DeltaTable

from quipu.pipeline.spark import sink_kafka
from quipu.pipeline.spark.following import Step, with_diff
from quipu.pipeline.spark.running import wait_until
from quipu.pipeline.spark.sending import NotWritten
from quipu.pipeline.spark.sink_delta import DeltaTarget
from quipu.pipeline.spark.sink_kafka import KafkaTarget, json_of
from quipu.pipeline.spark.sink_parquet import ParquetTarget
from tests.harness.node import RunningNode
from tests.pipeline.spark.broker import Broker

ROW_COUNT = 20_000
ROWS = pa.schema([("id", pa.string()), ("n", pa.int64())])


def step(version: int, *changes: tuple[int, str, int], schema: pa.Schema = ROWS) -> Step:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist(
            [{"id": key, "n": n, "m": n, "#diff": diff} for diff, key, n in changes],
            schema=with_diff(schema),
        )
    return Step(version, version == 0, schema, batches())


def read_parquet(folder: Path) -> list[dict[str, object]]:
    tables = [pq.read_table(path) for path in sorted(folder.glob("*.parquet"))]
    return [row for table in tables for row in table.to_pylist()]


def test_parquet_has_each_version_once(tmp_path: Path) -> None:
    """I11: a version that is written again after a crash is there once."""
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


def kafka(broker: Broker, topic: str, mark: Path, *key: str) -> KafkaTarget:
    settings = {"bootstrap.servers": broker.bootstrap}
    return KafkaTarget("s", topic, key=key, settings=settings, mark=mark)


def test_kafka_has_the_newest_row_of_a_key_and_nulls_for_those_gone(
    broker: Broker, tmp_path: Path
) -> None:
    """I13: the topic is the view, for consumers that know upserts."""
    topic = broker.topic()
    target = kafka(broker, topic, tmp_path / "mark", "id")
    assert target.position() is None

    target.write(step(0, (1, "a", 1), (1, "b", 2)))
    target.write(step(1, (-1, "a", 1), (1, "a", 5), (-1, "b", 2)))

    assert target.position() == 1
    assert consumed(broker, topic, 4) == [
        (b"a", {"id": "a", "n": 1}), (b"b", {"id": "b", "n": 2}), (b"a", {"id": "a", "n": 5}),
        (b"b", None),
    ]


def test_kafka_writes_only_what_a_crash_left_out(broker: Broker, tmp_path: Path) -> None:
    """I11: whatever part of a version is there already, in the end all of it is there once."""
    topic = broker.topic(partitions=2)
    mark = tmp_path / "mark"
    target = kafka(broker, topic, mark, "id")
    target.write(step(0, (1, "z", 0)))
    before = mark.read_text()
    changes = [(1, letter, 1) for letter in "abcdefg"]
    target.write(step(1, *changes[:4]))  # as much as was written before the crash

    mark.write_text(before)
    kafka(broker, topic, mark, "id").write(step(1, *changes))
    kafka(broker, topic, mark, "id").write(step(2, (1, "y", 0)))

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


def size_of(consumer: Consumer, topic: str) -> int:
    return sum(consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)[1]
               for number in range(2))


def test_kafka_has_each_message_once_although_the_broker_was_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I11: a broker is killed, or hangs, in the middle of a version: nothing lost, nothing twice.

    After a failed flush the same producer goes on, so that a broker which has taken messages that
    it has not acknowledged recognizes them.
    """
    monkeypatch.setattr(sink_kafka, "FLUSH_SECONDS", 0.3)
    failures: Counter[int] = Counter()
    with RunningNode(tmp_path / "data") as node:
        settings = {"bootstrap.servers": node.bootstrap}
        topic = Broker(node.bootstrap).topic(partitions=2)
        target = KafkaTarget("s", topic, key=("id",), mark=tmp_path / "mark", settings=settings)
        watcher = Consumer({**settings, "group.id": "watches"})

        def harm(version: int, hurt: Callable[[], object], heal: Callable[[], object]) -> None:
            before = size_of(watcher, topic)
            assert wait_until(lambda: size_of(watcher, topic) > before, 30, pause=0)
            hurt()
            wait_until(lambda: failures[version] > 0, 2)
            heal()

        for version, (hurt, heal) in enumerate(
                ((node.kill, node.start), (node.pause, node.resume))):
            came = [(1, str(n), version) for n in range(ROW_COUNT - version)]
            went = [(-1, str(n), version - 1) for n in range(ROW_COUNT)] if version else []
            harming = threading.Thread(target=harm, args=(version, hurt, heal))
            harming.start()
            while target.position() != version:
                try:
                    target.write(step(version, *went, *came))
                except NotWritten:
                    failures[version] += 1
            harming.join()
        found = copy_of(node.bootstrap, topic)

    assert set(found.once.values()) == {1}
    assert len(found.once) == 2 * ROW_COUNT  # the last of the second version is a null value
    assert found.rows == {str(n).encode(): 1 for n in range(ROW_COUNT - 1)}
    assert set(failures) == {0, 1}, "the broker was hurt too late"


def test_kafka_says_what_a_broker_does_not_take(broker: Broker, tmp_path: Path) -> None:
    """I11, I19: the error names the topic and the reason; the rest is written once."""
    topic = broker.topic()
    settings = {"bootstrap.servers": broker.bootstrap, "message.max.bytes": "1000"}
    target = KafkaTarget("s", topic, key=("id",), mark=tmp_path / "mark", settings=settings)
    target.write(step(0, (1, "a", 1)))

    for _ in range(2):
        with pytest.raises(NotWritten, match=f"topic {topic}: .*too large"):
            target.write(step(1, (1, "b", 1), (1, "x" * 2000, 1)))
    kafka(broker, topic, tmp_path / "mark", "id").write(step(1, (1, "b", 1), (1, "x" * 2000, 1)))

    assert [key for key, _ in consumed(broker, topic, 3)] == [b"a", b"b", b"x" * 2000]


def test_json_of_what_json_has_no_word_for() -> None:
    """I13: values that JSON does not know are written so that they can be read back."""
    assert json_of({"n": Decimal("1.50"), "b": b"\x00\xff"}) == b'{"n":1.50,"b":"AP8="}'

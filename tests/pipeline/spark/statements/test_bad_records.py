"""A topic in which one message of a hundred cannot be decoded, by each policy, at once."""

import json
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer

from quipu.pipeline.envelopes.contract import OutstandingErrors
from quipu.pipeline.spark.session.supervisor import summary
from tests.pipeline.spark.broker import DELIVERY_SECONDS_MAX, Broker
from tests.pipeline.spark.workbench import Workbench

COUNT = 2_000
KEYS = 300
PARTITIONS = 2
COLUMNS = "(id bigint, name text)"
BAD = [b"\xff\xfe", b"{", b'{"id": "x"}', b"[]", b'{"id": 1} {}', b'{"id": 99999999999999999999}',
       b""]


class Sent(NamedTuple):
    """One message, and whether it is bad."""

    partition: int
    offset: int
    timestamp: int
    headers: list[tuple[str, bytes | None]]
    key: bytes
    value: bytes
    row: tuple[int, str] | None

    @property
    def letter(self) -> tuple[Any, ...]:
        """What a dead letter must have, besides the error."""
        return (self.partition, self.offset, self.timestamp, self.headers, self.key, self.value)


def messages() -> Iterator[Sent]:
    rng = random.Random(3)
    offsets = [0] * PARTITIONS
    bad = set(range(50, COUNT, 100))
    for number in range(COUNT):
        key = rng.randrange(KEYS)
        row = None if number in bad else (key, f"n{number}")
        value = (rng.choice(BAD[:-1]) if row is None
                 else json.dumps({"id": row[0], "name": row[1]}).encode())
        partition = key % PARTITIONS
        yield Sent(partition, offsets[partition], 1_700_000_000_000 + number,
                   [("trace", b"%d" % number), ("empty", None)], b"k%d" % key, value, row)
        offsets[partition] += 1


SENT = list(messages())


@pytest.fixture(scope="module")
def topic(broker: Broker) -> str:
    name = broker.topic(partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20})
    for each in SENT:
        producer.produce(name, each.value, each.key, each.partition, headers=each.headers,
                         timestamp=each.timestamp)
    assert producer.flush(DELIVERY_SECONDS_MAX) == 0
    return name


def letters(work: Workbench, name: str, topic: str) -> list[tuple[Any, ...]]:
    """Dead letters without their errors, in the order of the log."""
    found = work.frame(f"SELECT *, unix_millis(timestamp) AS ms FROM {name}_dead_letters").collect()
    assert {row.topic for row in found} == {topic}
    assert all(row.error for row in found)
    return sorted((row.partition, row.offset, row.ms,
                   [(each.key, None if each.value is None else bytes(each.value))
                    for each in row.headers], bytes(row.key), bytes(row.value)) for row in found)


def newest(*, with_bad: bool) -> dict[bytes, tuple[int, str] | None]:
    """The row of each key; a bad message leaves what was there, or counts as none."""
    rows: dict[bytes, tuple[int, str] | None] = {}
    for each in SENT:
        if each.row is not None or with_bad:
            rows[each.key] = each.row
    return rows


WANTED_LETTERS = sorted(each.letter for each in SENT if each.row is None)


def test_the_rest_is_exact_and_dead_letters_are_whole(work: Workbench, topic: str) -> None:
    """I15: a view over 1 % of bad records, and each of those with all that is known of it."""
    name = work.source_of(topic, "KEY FORMAT TEXT VALUE FORMAT JSON ENVELOPE UPSERT", COLUMNS)
    view = work.view(f"SELECT id, name FROM {name}")

    assert len(WANTED_LETTERS) == COUNT // 100
    assert work.rows(f"SELECT * FROM {view}") == sorted(
        (row for row in newest(with_bad=False).values() if row), key=repr)
    assert letters(work, view, topic) == WANTED_LETTERS
    (progress,) = [each for each in work.pipeline.progress() if each.view == view]
    assert (progress.messages, progress.dead_letters, progress.lag) == (COUNT, COUNT // 100, 0)


def test_without_keys_all_good_messages_are_rows(work: Workbench, topic: str) -> None:
    """I15: ENVELOPE NONE, dead letters and a column for the error."""
    aside = work.source_of(topic, "FORMAT JSON INCLUDE OFFSET", COLUMNS)
    inline = work.source_of(topic, "FORMAT JSON INCLUDE PARTITION, OFFSET "
                                   "WITH (ERRORS = 'inline')", COLUMNS)

    assert work.rows(f"SELECT id, name, offset FROM {aside}") == sorted(
        ((*each.row, each.offset) for each in SENT if each.row), key=repr)
    assert letters(work, aside, topic) == WANTED_LETTERS
    found = work.rows(f"SELECT partition, offset, id, name, error IS NULL FROM {inline}")
    assert found == sorted(
        ((each.partition, each.offset, *(each.row or (None, None)), each.row is not None)
         for each in SENT), key=repr)


def test_strict_and_inline_by_key(work: Workbench, broker: Broker) -> None:
    """I15: errors of keys stand in a column, or stop every SELECT until they are taken back."""
    topic = broker.topic()
    for number in range(200):
        value = BAD[number % 6] if number % 50 == 9 else b'{"id": %d, "name": "x"}' % number
        broker.send(topic, b"k%d:" % number + value)
    upsert = "KEY FORMAT TEXT VALUE FORMAT JSON INCLUDE KEY ENVELOPE UPSERT"
    inline = work.source_of(topic, f"{upsert} (VALUE DECODING ERRORS = INLINE AS why)", COLUMNS)
    strict = work.source_of(topic, f"{upsert} WITH (ERRORS = 'strict')", COLUMNS)
    view = work.view(f"SELECT key, id FROM {strict}")

    assert work.rows(f"SELECT key FROM {inline} WHERE why IS NOT NULL AND id IS NULL") == [
        ("k109",), ("k159",), ("k59",), ("k9",)]
    assert work.rows(f"SELECT count(*), count(why) FROM {inline}") == [(200, 4)]
    with pytest.raises(OutstandingErrors, match=f"source {strict}: "):
        work.rows(f"SELECT * FROM {view}")
    with pytest.raises(Exception, match=r"JSON|UTF-8|bigint|object") as caught:
        work.rows(f"SELECT key FROM {strict}")
    assert summary(caught.value).startswith(f"source {strict}: ")

    broker.send(topic, 'k9:{"id": 1}', "k59:", 'k109:{"id": 2}', 'k159:{"id": 3}')
    assert work.rows(f"SELECT count(*) FROM {view}") == [(199,)]
    assert work.rows(f"SELECT count(*), count(why) FROM {inline}") == [(199, 0)]

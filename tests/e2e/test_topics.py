"""What topics can do, told once and run on a node's own logs and on diskless topics."""

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    Producer,
    TopicPartition,
)
from confluent_kafka import Message as KafkaMessage
from confluent_kafka.admin import AdminClient

from tests.e2e.conftest import MAKE, Place
from tests.e2e.contract import WAIT_SECONDS_MAX, Message, wait_until

MINUTE_MS = 60_000
BY_STOCK_ADMIN = "confluent-kafka"


@pytest.fixture
def admin_of_one(place_of_one: Place) -> AdminClient:
    return AdminClient({"bootstrap.servers": place_of_one.bootstrap})


def create(place: Place, topic: str, **configs: str) -> None:
    """A topic of one partition; settings have _ for dots."""
    place.connect(BY_STOCK_ADMIN).create_topic(
        topic, 1, {key.replace("_", "."): value for key, value in configs.items()})


def put(place: Place, topic: str, values: list[bytes], at: int = 0) -> list[KafkaError | None]:
    """Produce, a minute of the client's time between two values; the error of each."""
    producer = Producer({"bootstrap.servers": place.bootstrap, "linger.ms": 0,
                         "message.max.bytes": 10_000_000})
    errors: list[KafkaError | None] = []
    for number, value in enumerate(values):
        producer.produce(topic, value, timestamp=at + number * MINUTE_MS if at else 0,
                         on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(WAIT_SECONDS_MAX) == 0
    return errors


def read(place: Place, topic: str, count: int) -> list[KafkaMessage]:
    """The first messages of partition 0."""
    consumer = Consumer({"bootstrap.servers": place.bootstrap, "group.id": "unused",
                         "auto.offset.reset": "error"})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[KafkaMessage] = []
    while len(found) < count:
        some = consumer.consume(count - len(found), timeout=WAIT_SECONDS_MAX)
        assert some, f"{len(found)} of {count} messages"
        assert [each.error() for each in some] == [None] * len(some)
        found += some
    consumer.close()
    return found


def test_timestamps_of_both_kinds(place_of_one: Place, topic: str) -> None:
    """K2, D1: the producer's own times, or those of the append, in records and in look-ups."""
    old = 1_600_000_000_000
    client = place_of_one.connect(BY_STOCK_ADMIN)
    create(place_of_one, topic, retention_ms="-1")
    create(place_of_one, f"{topic}-appended", retention_ms="-1",
           message_timestamp_type="LogAppendTime")
    for name in (topic, f"{topic}-appended"):
        assert put(place_of_one, name, [b"a", b"b", b"c"], old) == [None] * 3

    assert [each.timestamp() for each in read(place_of_one, topic, 3)] == [
        (TIMESTAMP_CREATE_TIME, old + number * MINUTE_MS) for number in range(3)]
    assert client.offset_for_time(topic, old + 1) == 1
    assert client.offset_for_time(topic, old + 2 * MINUTE_MS + 1) is None

    appended = [each.timestamp() for each in read(place_of_one, f"{topic}-appended", 3)]
    assert {kind for kind, _ in appended} == {TIMESTAMP_LOG_APPEND_TIME}
    times = [at for _, at in appended]
    assert times == sorted(times)
    assert times[0] > old + 10 * MINUTE_MS
    assert client.offset_for_time(f"{topic}-appended", old) == 0
    assert client.offset_for_time(f"{topic}-appended", times[2] + 1) is None


def test_a_message_that_is_too_large_is_refused(place_of_one: Place, topic: str) -> None:
    """K2, D1: by the topic's max.message.bytes; what comes before and after is written."""
    create(place_of_one, topic, max_message_bytes="2000")

    errors = put(place_of_one, topic, [b"small", bytes(3000), b"small too"])

    assert [error and error.code() for error in errors] == [
        None, KafkaError.MSG_SIZE_TOO_LARGE, None]
    assert [(each.offset(), each.value()) for each in read(place_of_one, topic, 2)] == [
        (0, b"small"), (1, b"small too")]


def test_records_are_deleted(place_of_one: Place, admin_of_one: AdminClient, topic: str) -> None:
    """K5, D1: up to an offset; the log begins there, for every client, and goes on."""
    create(place_of_one, topic)
    put(place_of_one, topic, [b"%d" % number for number in range(10)])

    place = TopicPartition(topic, 0, 7)
    assert admin_of_one.delete_records([place])[place].result(WAIT_SECONDS_MAX).low_watermark == 7

    put(place_of_one, topic, [b"10"])
    for name in MAKE:
        found = place_of_one.connect(name).consume(topic, 4)
        assert [(each.offset, each.value) for each in found] == [
            (offset, str(offset)) for offset in range(7, 11)], name


def test_a_deleted_topic_begins_anew(
    place_of_one: Place, admin_of_one: AdminClient, topic: str
) -> None:
    """K5, D1: it is not listed any more; a topic of that name is a new and empty one."""
    create(place_of_one, topic)
    put(place_of_one, topic, [b"old"])

    admin_of_one.delete_topics([topic])[topic].result(WAIT_SECONDS_MAX)
    wait_until(lambda: topic not in admin_of_one.list_topics(timeout=WAIT_SECONDS_MAX).topics,
               "it is gone")

    create(place_of_one, topic)
    put(place_of_one, topic, [b"new"])
    for name in MAKE:
        (found,) = place_of_one.connect(name).consume(topic, 1)
        assert found == Message("new", offset=0, timestamp=found.timestamp)

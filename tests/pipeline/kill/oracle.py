"""What the views must hold, computed from the topics by a plain consumer and dictionaries."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import Consumer, TopicPartition

from tests.harness.progress import Patience

Row = tuple[Any, ...]
Places = Mapping[str, Mapping[str, int]]  # of one source: topic, partition, the next offset


class Message(NamedTuple):
    """One message of a topic."""

    topic: str
    partition: int
    offset: int
    key: str
    value: str | None


def read(bootstrap: str, *topics: str) -> list[Message]:
    """Everything in some topics, partition by partition, in order."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "oracle",
                         "enable.auto.commit": False})
    places, left = [], 0
    for topic in topics:
        for partition in consumer.list_topics(topic, timeout=30).topics[topic].partitions:
            place = TopicPartition(topic, partition, 0)
            places.append(place)
            left += consumer.get_watermark_offsets(place, timeout=30)[1]
    consumer.assign(places)
    found: list[Message] = []
    patience = Patience(lambda: f"{len(found)} of {left}")
    while len(found) < left:
        patience.check(len(found))
        for message in consumer.consume(1000, timeout=1.0):
            assert message.error() is None, message.error()
            key, value = message.key(), message.value()
            found.append(Message(message.topic(), message.partition(), message.offset(),
                                 "" if key is None else key.decode(),
                                 None if value is None else value.decode()))
    consumer.close()
    return sorted(found)


def before(messages: Iterable[Message], places: Iterable[Places]) -> list[Message]:
    """The messages that a version has seen."""
    ends = {(topic, int(partition)): end for place in places
            for topic, partitions in place.items() if not topic.startswith("#")
            for partition, end in partitions.items()}
    return [each for each in messages
            if each.offset < ends.get((each.topic, each.partition), 0)]


def latest(messages: Iterable[Message]) -> Counter[Row]:
    """The newest name of each person, and where it stands."""
    people: dict[str, Row | None] = {}
    for each in messages:
        if each.topic == "people":
            row = (each.key, each.value, each.partition, each.offset)
            people[each.key] = None if each.value is None else row
    return Counter(row for row in people.values() if row is not None)


def bought(messages: list[Message]) -> Counter[Row]:
    """What was bought by people who are there, under their newest names."""
    names = {row[0]: row[1] for row in latest(messages)}
    return Counter((each.value, each.key, names[each.key]) for each in messages
                   if each.topic == "orders" and each.key in names)


def plain(messages: Iterable[Message]) -> Counter[Row]:
    """What was bought, by whomever."""
    return Counter((each.value, each.key, each.partition, each.offset) for each in messages
                   if each.topic == "orders")

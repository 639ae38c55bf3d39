"""confluent-kafka: librdkafka from Python."""

from collections.abc import Mapping, Sequence

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.e2e.contract import WAIT_SECONDS_MAX, Member, Message
from tests.e2e.member import python_member


class ConfluentClient:
    """The adapter."""

    name = "confluent-kafka"
    is_admin = True

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        new = NewTopic(topic, num_partitions=partitions, config=dict(configs))
        self._admin.create_topics([new])[topic].result(WAIT_SECONDS_MAX)

    def partition_count(self, topic: str) -> int:
        metadata = self._admin.list_topics(timeout=WAIT_SECONDS_MAX)
        return len(metadata.topics[topic].partitions)

    def produce(
        self, topic: str, messages: Sequence[Message], *, compression: str, idempotent: bool
    ) -> None:
        producer = Producer({
            "bootstrap.servers": self._bootstrap, "compression.type": compression,
            "enable.idempotence": idempotent, "linger.ms": 0,
        })
        errors: list[KafkaError] = []
        for message in messages:
            producer.produce(
                topic, value=message.value, key=message.key, partition=message.partition,
                headers=[(name, value.encode()) for name, value in message.headers],
                on_delivery=lambda error, _: errors.append(error) if error else None,
            )
        assert producer.flush(WAIT_SECONDS_MAX) == 0, "not all were acknowledged"
        assert not errors, errors

    def consume(self, topic: str, count: int) -> list[Message]:
        partitions = range(self.partition_count(topic))
        return self._read([TopicPartition(topic, each, 0) for each in partitions], count)

    def read_from(self, topic: str, offset: int, count: int) -> list[Message]:
        return self._read([TopicPartition(topic, 0, offset)], count)

    def _read(self, places: list[TopicPartition], count: int) -> list[Message]:
        consumer = Consumer({
            "bootstrap.servers": self._bootstrap, "group.id": "unused",
            "enable.auto.commit": False, "auto.offset.reset": "earliest",
        })
        consumer.assign(places)
        found: list[Message] = []
        while len(found) < count:
            batch = consumer.consume(count - len(found), timeout=WAIT_SECONDS_MAX)
            assert batch, f"{len(found)} of {count} messages"
            found += [_message(each) for each in batch]
        consumer.close()
        return found

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int | None:
        wanted = {TopicPartition(topic, 0): OffsetSpec.for_timestamp(timestamp_ms)}
        (answer,) = self._admin.list_offsets(wanted).values()
        offset = answer.result(WAIT_SECONDS_MAX).offset
        return offset if offset >= 0 else None

    def configs(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        answer = self._admin.describe_configs([resource])[resource]
        return {name: entry.value for name, entry in answer.result(WAIT_SECONDS_MAX).items()}

    def alter_config(self, topic: str, key: str, value: str) -> None:
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        answer = self._admin.incremental_alter_configs([resource])[resource]
        answer.result(WAIT_SECONDS_MAX)

    def member(self, group: str, topic: str) -> Member:
        return python_member("confluent", self._bootstrap, group, topic)


def _message(record: confluent_kafka.Message) -> Message:
    assert record.error() is None, record.error()
    key = record.key()
    return Message(
        value=record.value().decode(),
        key=None if key is None else key.decode(),
        headers=tuple((name, value.decode()) for name, value in record.headers() or ()),
        partition=record.partition(),
        offset=record.offset(),
        timestamp=record.timestamp()[1],
    )

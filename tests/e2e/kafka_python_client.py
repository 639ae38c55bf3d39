"""kafka-python: a client in pure Python, of its own making throughout."""

from collections.abc import Mapping, Sequence
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic

from tests.e2e.contract import WAIT_SECONDS_MAX, Member, Message
from tests.e2e.member import python_member


class KafkaPythonClient:
    """The adapter."""

    name = "kafka-python"
    is_admin = True

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=-1,
                       topic_configs=dict(configs))
        with self._admin() as admin:
            admin.create_topics([new])

    def partition_count(self, topic: str) -> int:
        with self._admin() as admin:
            (found,) = admin.describe_topics([topic])
        return len(found["partitions"])

    def produce(
        self, topic: str, messages: Sequence[Message], *, compression: str, idempotent: bool
    ) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self._bootstrap, acks="all", enable_idempotence=idempotent,
            compression_type=None if compression == "none" else compression,
        )
        sent = [
            producer.send(
                topic, value=message.value.encode(), partition=message.partition,
                key=None if message.key is None else message.key.encode(),
                headers=[(name, value.encode()) for name, value in message.headers],
            )
            for message in messages
        ]
        for each in sent:
            each.get(WAIT_SECONDS_MAX)
        producer.close()

    def consume(self, topic: str, count: int) -> list[Message]:
        consumer = self._consumer()
        partitions = consumer.partitions_for_topic(topic) or set()
        consumer.assign([TopicPartition(topic, partition) for partition in sorted(partitions)])
        consumer.seek_to_beginning()
        return self._read(consumer, count)

    def read_from(self, topic: str, offset: int, count: int) -> list[Message]:
        consumer = self._consumer()
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), offset)
        return self._read(consumer, count)

    def _read(self, consumer: KafkaConsumer, count: int) -> list[Message]:
        found: list[Message] = []
        while len(found) < count:
            polled = consumer.poll(timeout_ms=WAIT_SECONDS_MAX * 1000)
            assert polled, f"{len(found)} of {count} messages"
            found += [_message(record) for records in polled.values() for record in records]
        consumer.close()
        return found[:count]

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int | None:
        consumer = self._consumer()
        (found,) = consumer.offsets_for_times({TopicPartition(topic, 0): timestamp_ms}).values()
        consumer.close()
        return None if found is None else found.offset

    def configs(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        with self._admin() as admin:
            answer = admin.describe_configs([resource], config_filter="all")
        return {name: entry["value"] for name, entry in _topic_entries(answer, topic).items()}

    def alter_config(self, topic: str, key: str, value: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={key: value})
        with self._admin() as admin:
            admin.alter_configs([resource])

    def member(self, group: str, topic: str) -> Member:
        return python_member("kafka_python", self._bootstrap, group, topic)

    def _consumer(self) -> KafkaConsumer:
        return KafkaConsumer(bootstrap_servers=self._bootstrap, enable_auto_commit=False,
                             auto_offset_reset="earliest")

    def _admin(self) -> KafkaAdminClient:
        return KafkaAdminClient(bootstrap_servers=self._bootstrap)


def _topic_entries(answer: Mapping[str, Any], topic: str) -> dict[str, Any]:
    return dict(answer[ConfigResourceType.TOPIC.name.lower()][topic])


def _message(record: Any) -> Message:
    return Message(
        value=record.value.decode(),
        key=None if record.key is None else record.key.decode(),
        headers=tuple((name, value.decode()) for name, value in record.headers),
        partition=record.partition,
        offset=record.offset,
        timestamp=record.timestamp,
    )

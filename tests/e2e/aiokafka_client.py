"""aiokafka: an asyncio client; each call runs a loop of its own."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from tests.e2e.contract import WAIT_SECONDS_MAX, Member, Message
from tests.e2e.member import python_member

UNKNOWN_TOPIC = 3  # UNKNOWN_TOPIC_OR_PARTITION: this node has not heard of it yet


class AiokafkaClient:
    """The adapter."""

    name = "aiokafka"
    is_admin = True

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        async def run() -> None:
            replicas = self._bootstrap.count(",") + 1  # it knows no way to say "as many as usual"
            new = NewTopic(topic, partitions, replicas, topic_configs=dict(configs))
            async with self._admin() as admin:
                answer = await admin.create_topics([new])
            assert [error[1] for error in answer.topic_errors] == [0], answer

        asyncio.run(run())

    def partition_count(self, topic: str) -> int:
        async def run() -> int:
            async with self._admin() as admin:
                (found,) = await admin.describe_topics([topic])
            return len(found["partitions"])

        return asyncio.run(run())

    def produce(
        self, topic: str, messages: Sequence[Message], *, compression: str, idempotent: bool
    ) -> None:
        async def run() -> None:
            producer = AIOKafkaProducer(
                bootstrap_servers=self._bootstrap, acks="all", enable_idempotence=idempotent,
                compression_type=None if compression == "none" else compression,
            )
            await producer.start()
            try:
                sent = [
                    await producer.send(
                        topic, value=message.value.encode(), partition=message.partition,
                        key=None if message.key is None else message.key.encode(),
                        headers=[(name, value.encode()) for name, value in message.headers],
                    )
                    for message in messages
                ]
                await asyncio.wait_for(asyncio.gather(*sent), WAIT_SECONDS_MAX)
            finally:
                await producer.stop()

        asyncio.run(run())

    def consume(self, topic: str, count: int) -> list[Message]:
        partitions = range(self.partition_count(topic))
        return self._read([TopicPartition(topic, each) for each in partitions], count)

    def read_from(self, topic: str, offset: int, count: int) -> list[Message]:
        return self._read([TopicPartition(topic, 0)], count, offset)

    def _read(
        self, partitions: Sequence[TopicPartition], count: int, offset: int | None = None
    ) -> list[Message]:
        async def run() -> list[Message]:
            async with self._consumer() as consumer:
                consumer.assign(partitions)
                if offset is not None:
                    consumer.seek(partitions[0], offset)
                found: list[Message] = []
                while len(found) < count:
                    polled = await consumer.getmany(timeout_ms=int(WAIT_SECONDS_MAX * 1000))
                    assert polled, f"{len(found)} of {count} messages"
                    found += [_message(each) for records in polled.values() for each in records]
            return found[:count]

        return asyncio.run(run())

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int | None:
        async def run() -> int | None:
            async with self._consumer() as consumer:
                partition = TopicPartition(topic, 0)
                found = (await consumer.offsets_for_times({partition: timestamp_ms}))[partition]
            return None if found is None else found.offset

        return asyncio.run(run())

    def configs(self, topic: str) -> dict[str, str]:
        async def run() -> dict[str, str]:
            async with self._admin() as admin:
                resource = ConfigResource(ConfigResourceType.TOPIC, topic)
                deadline = asyncio.get_running_loop().time() + WAIT_SECONDS_MAX
                code = UNKNOWN_TOPIC  # it asks any node, and does not ask again by itself
                while code == UNKNOWN_TOPIC and asyncio.get_running_loop().time() < deadline:
                    (answer,) = await admin.describe_configs([resource])
                    ((code, _, _, name, entries),) = answer.resources
            assert (code, name) == (0, topic)
            return {entry[0]: entry[1] for entry in entries}

        return asyncio.run(run())

    def alter_config(self, topic: str, key: str, value: str) -> None:
        async def run() -> None:
            async with self._admin() as admin:
                resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={key: value})
                (answer,) = await admin.alter_configs([resource])
            assert [each[0] for each in answer.resources] == [0], answer

        asyncio.run(run())

    def member(self, group: str, topic: str) -> Member:
        return python_member("aiokafka", self._bootstrap, group, topic)

    @asynccontextmanager
    async def _admin(self) -> AsyncIterator[AIOKafkaAdminClient]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        await admin.start()
        try:
            yield admin
        finally:
            await admin.close()

    @asynccontextmanager
    async def _consumer(self) -> AsyncIterator[AIOKafkaConsumer]:
        consumer = AIOKafkaConsumer(bootstrap_servers=self._bootstrap, enable_auto_commit=False,
                                    auto_offset_reset="earliest")
        await consumer.start()
        try:
            yield consumer
        finally:
            await consumer.stop()


def _message(record: Any) -> Message:
    return Message(
        value=record.value.decode(),
        key=None if record.key is None else record.key.decode(),
        headers=tuple((name, value.decode()) for name, value in record.headers),
        partition=record.partition,
        offset=record.offset,
        timestamp=record.timestamp,
    )

"""What clients do in a simulated world: produce, consume, create topics; each until it is told.

    produce_idempotently   sends each batch, with its sequence, until it is acknowledged by all
    produce_plainly        sends each batch once; acks 1 or all; an unknown outcome stays unknown
    consume                reads one partition from its beginning, where it is told to
    create_topics          creates topics by name, again where the answer was lost
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from quipu.model.errors import Code, QuipuError
from quipu.sim.client import Client, Place
from quipu.sim.frames import Disconnected
from quipu.sim.history import History, TopicPartition
from quipu.sim.world import BEGAN_MS, Violation
from quipu.wire.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from quipu.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from quipu.wire.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from quipu.wire.messages.k22_init_producer_id import InitProducerIdRequest
from quipu.wire.record_batch import Record, body_crc, decode_records, encode_batch, parse_header

PRODUCE_VERSION: Final = 9
FETCH_VERSION: Final = 11
RECORD_SIZE_MAX: Final = 1 << 20
ALL: Final = -1
NOT_TAKEN: Final = frozenset({  # errors that promise that nothing was written
    Code.UNKNOWN_TOPIC_OR_PARTITION, Code.NOT_ENOUGH_REPLICAS, Code.LEADER_NOT_AVAILABLE,
    Code.FENCED_LEADER_EPOCH, Code.INVALID_TIMESTAMP,
})
RETRIED: Final = NOT_TAKEN | {
    Code.NOT_LEADER_OR_FOLLOWER,  # perhaps it was, when the batch came
    Code.REQUEST_TIMED_OUT, Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Code.KAFKA_STORAGE_ERROR,
    Code.BROKER_NOT_AVAILABLE, Code.NOT_CONTROLLER, Code.NETWORK_EXCEPTION,
    Code.COORDINATOR_NOT_AVAILABLE, Code.COORDINATOR_LOAD_IN_PROGRESS,
}


class CorruptBatch(QuipuError):
    """What every client checks: the bytes are not those that a producer sent."""


@dataclass(slots=True, eq=False)
class Load:
    """What all clients of a world share."""

    history: History = field(default_factory=History)
    goes_on: bool = True  # producers stop when it does not
    pause_min: float = 0.002  # seconds between two requests of one client
    pause_max: float = 0.1
    payload_max: int = 200


def batch_of(client: Client, load: Load, start: int) -> tuple[list[bytes], list[Record]]:
    """Some values that nobody else sends, and the records that carry them."""
    values = [f"{client.name}-{start + index}".encode()
              for index in range(1 + client.dice.below(4))]
    now_ms = BEGAN_MS + int(client.world.loop.now * 1000)
    padding = client.dice.below(load.payload_max + 1)
    return values, [Record(value, b"." * padding, (), now_ms) for value in values]


async def produce_idempotently(client: Client, load: Load, partition: TopicPartition) -> None:
    """Every batch exactly once, whatever happens."""
    producer_id, sequence, number = await producer_id_for(client), 0, 0
    while load.goes_on:
        values, records = batch_of(client, load, number)
        batch = encode_batch(
            records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        for value in values:
            load.history.sent(value)
        offset = await _until_acked(client, partition, bytes(batch))
        for index, value in enumerate(values):
            if offset >= 0:  # a copy of a batch far back is known to be there, not where
                load.history.acked(partition, offset + index, value)
        number += len(values)
        sequence += len(values)
        await asyncio.sleep(client.dice.between(load.pause_min, load.pause_max))


async def _until_acked(client: Client, partition: TopicPartition, batch: bytes) -> int:
    while True:
        try:
            code, offset = await _produce(client, partition, batch, ALL)
        except Disconnected:
            code, offset = Code.NETWORK_EXCEPTION, -1
        if code == Code.NONE:
            return offset
        if code == Code.DUPLICATE_SEQUENCE_NUMBER:
            return -1
        if code not in RETRIED:
            raise Violation(f"{client.name}: a batch for {partition} that follows acknowledged "
                            f"ones was refused: {Code(code).name}")
        await asyncio.sleep(client.dice.between(0.02, 0.25))


async def produce_plainly(
    client: Client, load: Load, partition: TopicPartition, *, acks: int
) -> None:
    """Every batch at most once."""
    number = 0
    while load.goes_on:
        values, records = batch_of(client, load, number)
        for value in values:
            load.history.sent(value)
        try:
            code, offset = await _produce(client, partition, bytes(encode_batch(records)), acks)
        except Disconnected:
            code, offset = Code.NETWORK_EXCEPTION, -1
        if code == Code.NONE and acks == ALL:
            for index, value in enumerate(values):
                load.history.acked(partition, offset + index, value)
        elif code in NOT_TAKEN:
            for value in values:
                load.history.refused(value)
        elif code != Code.NONE and code not in RETRIED:
            raise Violation(f"{client.name}: {Code(code).name} for a good batch")
        number += len(values)
        await asyncio.sleep(client.dice.between(load.pause_min, load.pause_max))


async def _produce(
    client: Client, partition: TopicPartition, batch: bytes, acks: int
) -> tuple[int, int]:
    """The error code and the offset that the leader answers."""
    topic, index = partition
    place = await client.leader(topic, index)
    request = ProduceRequest(acks=acks, timeout=2000, topic_data=[TopicProduceData(
        name=topic, partition_data=[
            PartitionProduceData(index=index, records=memoryview(batch))])])
    try:
        answer = await client.ask(place, request, PRODUCE_VERSION)
    except Disconnected:
        client.forget_leader(topic, index)
        raise
    part = answer.responses[0].partition_responses[0]
    client.world.trace.add(client.world.loop.now, client.name, "produced",
                           f"{topic}-{index} {Code(part.error_code).name} {part.base_offset}")
    if part.error_code != Code.NONE:
        client.forget_leader(topic, index)
    elif acks == ALL:
        client.world.happened("ack", place.host)
    return part.error_code, part.base_offset


async def producer_id_for(client: Client) -> int:
    """An id of its own; asks until somebody gives one."""
    while True:
        try:
            answer = await client.ask(
                client.anyone(), InitProducerIdRequest(
                    transactional_id=None, transaction_timeout=60_000), 3)
        except Disconnected:
            continue
        if answer.error_code == Code.NONE:
            producer_id: int = answer.producer_id
            return producer_id
        if answer.error_code not in RETRIED:
            raise Violation(f"{client.name} got no producer id: {Code(answer.error_code).name}")
        await asyncio.sleep(client.dice.between(0.05, 0.3))


@dataclass(slots=True, eq=False)
class Consumer:
    """Reads one partition from its beginning."""

    client: Client
    load: Load
    partition: TopicPartition
    position: int = 0
    high_watermark: int = 0
    read_from: Place | None = None  # the replica that the leader prefers

    async def run(self) -> None:
        """For as long as the world goes on."""
        while True:
            try:
                code = await self._poll()
            except Disconnected:
                code = Code.NETWORK_EXCEPTION
            except CorruptBatch:
                if not any(each.is_corrupt for each in self.client.world.machines.values()):
                    raise
                code = Code.CORRUPT_MESSAGE
            if code != Code.NONE:
                self._tell(f"{Code(code).name} at {self.position}")
                self.read_from = None
                self.client.forget_leader(*self.partition)
                await asyncio.sleep(self.client.dice.between(0.02, 0.2))

    async def _poll(self) -> int:
        topic, index = self.partition
        place = self.read_from or await self.client.leader(topic, index)
        answer = await self.client.ask(place, FetchRequest(
            replica_id=-1, max_wait=300, min_bytes=1, max_bytes=1 << 20, session_epoch=-1,
            topics=[FetchTopic(topic=topic, partitions=[FetchPartition(
                partition=index, fetch_offset=self.position, partition_max_bytes=1 << 16)])],
        ), FETCH_VERSION)
        if answer.error_code != Code.NONE:
            return int(answer.error_code)
        part = answer.responses[0].partitions[0]
        if part.error_code == Code.OFFSET_OUT_OF_RANGE:  # a client would begin elsewhere
            raise Violation(f"{self.client.name}: {place.host} says that {topic}-{index} has "
                            f"nothing at {self.position}: it ends at {part.high_watermark}")
        if part.error_code != Code.NONE:
            return int(part.error_code)
        if part.preferred_read_replica >= 0:
            self._tell(f"at {self.position} from {part.preferred_read_replica}")
            if part.preferred_read_replica not in self.client.brokers:
                await self.client.refresh(topic)
            self.read_from = self.client.brokers.get(part.preferred_read_replica)
            return Code.NONE if self.read_from is not None else Code.BROKER_NOT_AVAILABLE
        if part.high_watermark < 0 and part.records:
            pass  # committed, and the node is not sure that there is no more
        elif part.high_watermark < max(self.high_watermark, self.position):
            raise Violation(f"end-fell: {self.client.name} is told by {place.host} that "
                            f"{self.partition} is committed to {part.high_watermark}; it was "
                            f"{self.high_watermark}, and read to {self.position}")
        else:
            self.high_watermark = part.high_watermark
        self._take(part)
        return Code.NONE

    def _tell(self, about: str) -> None:
        world = self.client.world
        world.trace.add(world.loop.now, self.client.name, "reads", about)

    def _take(self, part: Any) -> None:  # noqa: ANN401 a partition of a FetchResponse
        read = self.load.history.read
        for record in records_of(part.records or memoryview(b"")):
            if record.offset < self.position:
                continue  # a batch is sent whole
            if 0 <= part.high_watermark <= record.offset:
                raise Violation(f"{self.client.name} got {self.partition} {record.offset}, "
                                f"committed is {part.high_watermark}")
            assert record.key is not None
            read(self.client.name, self.partition, record.offset, record.key)
            self.position = record.offset + 1


def records_of(data: memoryview) -> Iterator[Record]:
    """Every record in batches that stand back to back; the last may be cut short."""
    position = 0
    while len(data) - position >= 12:
        header_size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        if len(data) - position < header_size:
            return
        batch = data[position : position + header_size]
        header = parse_header(batch)
        if body_crc(batch) != header.crc:
            raise CorruptBatch(f"a batch at offset {header.base_offset} has a wrong CRC")
        yield from decode_records(batch, size_max=RECORD_SIZE_MAX)
        position += header_size


async def create_topic(
    client: Client, load: Load, name: str, *, partitions: int, **configs: str
) -> None:
    """Until it exists; by answer at most once."""
    wanted = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=-1,
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value)
                 for key, value in configs.items()])
    while True:
        try:
            answer = await client.ask(
                client.anyone(), CreateTopicsRequest(topics=[wanted], timeout=3000), 7)
        except Disconnected:
            await asyncio.sleep(client.dice.between(0.05, 0.3))
            await client.refresh()
            continue
        topic = answer.topics[0]
        client.world.trace.add(client.world.loop.now, client.name, "created",
                               f"{name} {Code(topic.error_code).name}")
        if topic.error_code == Code.NONE:
            assert topic.topic_id != UUID(int=0)
            load.history.created(name, str(topic.topic_id))
            return
        if topic.error_code == Code.TOPIC_ALREADY_EXISTS:
            return  # an answer that was lost
        if topic.error_code not in RETRIED:
            raise Violation(f"{client.name} cannot create {name}: {Code(topic.error_code).name} "
                            f"{topic.error_message}")
        await asyncio.sleep(client.dice.between(0.05, 0.3))
        await client.refresh()


async def create_topics(client: Client, load: Load) -> None:
    """One topic after another."""
    number = 0
    while load.goes_on:
        await create_topic(client, load, f"{client.name}-{number}", partitions=1)
        number += 1
        await asyncio.sleep(client.dice.between(0.3, 1.5))

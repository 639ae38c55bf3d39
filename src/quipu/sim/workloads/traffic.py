"""Clients in a simulated world that produce, consume and create topics until the load ends.

    produce_idempotently   sends each batch, with its sequence, until acks=all is acknowledged
    produce_plainly        sends each batch once, with acks 1 or all; the outcome may stay unknown
    Consumer               reads one partition from its start, as the leader directs
    create_topics          creates topics by name, again if the response was lost
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from quipu.model.errors import Code, QuipuError
from quipu.sim.twins.frames import SimDisconnected
from quipu.sim.workloads.client import BrokerAddress, Client
from quipu.sim.workloads.history import ClientHistory, TopicPartition
from quipu.sim.world import BEGAN_MS, Violation
from quipu.wire.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from quipu.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from quipu.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from quipu.wire.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from quipu.wire.messages.k22_init_producer_id import InitProducerIdRequest
from quipu.wire.record_batch import (
    BatchHeader,
    Record,
    body_crc,
    decode_records,
    encode_batch,
    parse_header,
)

PRODUCE_VERSION: Final = 9
FETCH_VERSION: Final = 11
LIST_OFFSETS_VERSION: Final = 7
EARLIEST: Final = -2  # of ListOffsets
RECORD_SIZE_MAX: Final = 1 << 20
ALL: Final = -1
NOT_TAKEN: Final = frozenset({  # errors that guarantee that nothing was written
    Code.UNKNOWN_TOPIC_OR_PARTITION, Code.NOT_ENOUGH_REPLICAS, Code.LEADER_NOT_AVAILABLE,
    Code.FENCED_LEADER_EPOCH, Code.INVALID_TIMESTAMP,
})
RETRIED: Final = NOT_TAKEN | {
    Code.NOT_LEADER_OR_FOLLOWER,  # it may have been the leader when the batch came
    Code.REQUEST_TIMED_OUT, Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Code.KAFKA_STORAGE_ERROR,
    Code.BROKER_NOT_AVAILABLE, Code.NOT_CONTROLLER, Code.NETWORK_EXCEPTION,
    Code.COORDINATOR_NOT_AVAILABLE, Code.COORDINATOR_LOAD_IN_PROGRESS,
}


class CorruptBatch(QuipuError):
    """A fetched batch with a wrong checksum, which every client detects."""


@dataclass(slots=True, eq=False)
class Load:
    """The state that all clients of a world share."""

    history: ClientHistory = field(default_factory=ClientHistory)
    goes_on: bool = True  # producers stop when it does not
    pause_min: float = 0.002  # seconds between two requests of one client
    pause_max: float = 0.1
    payload_max: int = 200
    # The offset before which records of a partition may have been deleted.
    deleted_end: Callable[[TopicPartition], int] = lambda _partition: 0


def batch_of(client: Client, load: Load, start: int) -> tuple[list[bytes], list[Record]]:
    """Some values that no other client sends, and the records with them."""
    values = [f"{client.name}-{start + index}".encode()
              for index in range(1 + client.dice.below(4))]
    now_ms = BEGAN_MS + int(client.world.loop.now * 1000)
    padding = client.dice.below(load.payload_max + 1)
    return values, [Record(value, b"." * padding, (), now_ms) for value in values]


async def produce_idempotently(client: Client, load: Load, partition: TopicPartition) -> None:
    """Send each batch until it is acknowledged: it must be stored exactly once."""
    producer_id, sequence, number = await producer_id_for(client), 0, 0
    while load.goes_on:
        values, records = batch_of(client, load, number)
        batch = encode_batch(
            records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        for value in values:
            load.history.sent(value)
        offset = await until_acked(client, partition, bytes(batch))
        for index, value in enumerate(values):
            if offset >= 0:  # an old duplicate is acknowledged without an offset
                load.history.acked(partition, offset + index, value)
        number += len(values)
        sequence += len(values)
        await asyncio.sleep(client.dice.between(load.pause_min, load.pause_max))


async def until_acked(client: Client, partition: TopicPartition, batch: bytes) -> int:
    """Send `batch` until it is acknowledged; its offset, -1 if it was stored before."""
    while True:
        try:
            code, offset = await _produce(client, partition, batch, ALL)
        except SimDisconnected:
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
    """Send each batch once: it must be stored at most once."""
    number = 0
    while load.goes_on:
        values, records = batch_of(client, load, number)
        for value in values:
            load.history.sent(value)
        try:
            code, offset = await _produce(client, partition, bytes(encode_batch(records)), acks)
        except SimDisconnected:
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
    """The error code and the offset of the leader's response."""
    topic, index = partition
    place = await client.leader(topic, index)
    request = ProduceRequest(acks=acks, timeout=2000, topic_data=[TopicProduceData(
        name=topic, partition_data=[
            PartitionProduceData(index=index, records=memoryview(batch))])])
    try:
        answer = await client.ask(place, request, PRODUCE_VERSION)
    except SimDisconnected:
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
    """A new producer id; requests one until there is a response with one."""
    while True:
        try:
            answer = await client.ask(
                client.anyone(), InitProducerIdRequest(
                    transactional_id=None, transaction_timeout=60_000), 3)
        except SimDisconnected:
            continue
        if answer.error_code == Code.NONE:
            producer_id: int = answer.producer_id
            return producer_id
        if answer.error_code not in RETRIED:
            raise Violation(f"{client.name} got no producer id: {Code(answer.error_code).name}")
        await asyncio.sleep(client.dice.between(0.05, 0.3))


@dataclass(slots=True, eq=False)
class Consumer:
    """Reads one partition from its start."""

    client: Client
    load: Load
    partition: TopicPartition
    position: int = 0
    high_watermark: int = 0
    read_from: BrokerAddress | None = None  # the replica that the leader prefers

    async def run(self) -> None:
        """Read for as long as the world runs."""
        while True:
            try:
                code = await self._poll()
            except SimDisconnected:
                code = Code.NETWORK_EXCEPTION
            except CorruptBatch:
                if not any(each.is_corrupt for each in self.client.world.machines.values()):
                    raise
                code = Code.CORRUPT_MESSAGE
            if code != Code.NONE:
                self._record(f"{Code(code).name} at {self.position}")
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
        if part.error_code == Code.OFFSET_OUT_OF_RANGE:  # a client would reset its position
            return await self._reset(place)
        if part.error_code != Code.NONE:
            return int(part.error_code)
        if part.preferred_read_replica >= 0:
            self._record(f"at {self.position} from {part.preferred_read_replica}")
            if part.preferred_read_replica not in self.client.brokers:
                await self.client.refresh(topic)
            self.read_from = self.client.brokers.get(part.preferred_read_replica)
            return Code.NONE if self.read_from is not None else Code.BROKER_NOT_AVAILABLE
        self._check_end(place, part)
        self._take(part)
        return Code.NONE

    def _check_end(self, place: BrokerAddress, part: Any) -> None:  # noqa: ANN401
        """Check that the high watermark of a response is not below an earlier one."""
        if part.high_watermark < 0 and (
                part.records or self.position < self.load.history.end(self.partition)):
            return  # the node has records, here or in the tier, and does not know the current end
        if part.high_watermark < max(self.high_watermark, self.position):
            raise Violation(f"end-fell: {self.client.name} got from {place.host} that "
                            f"{self.partition} is committed to {part.high_watermark}; it was "
                            f"{self.high_watermark}, and read to {self.position}")
        self.high_watermark = part.high_watermark

    async def _reset(self, place: BrokerAddress) -> int:
        """Go on from the log start, if the records before it may have been deleted."""
        topic, index = self.partition
        answer = await self.client.ask(await self.client.leader(topic, index), ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[
                ListOffsetsPartition(partition_index=index, timestamp=EARLIEST)])],
        ), LIST_OFFSETS_VERSION)
        part = answer.topics[0].partitions[0]
        if part.error_code != Code.NONE:
            return int(part.error_code)
        start = part.offset
        if not self.position < start <= self.load.deleted_end(self.partition):
            raise Violation(f"{self.client.name}: {place.host} says that {self.partition} has "
                            f"nothing at {self.position}: it begins at {start}")
        self._record(f"from {start}, not {self.position}")
        self.load.history.skipped(self.client.name, self.partition, start)
        self.position = start
        return Code.NONE

    def _record(self, about: str) -> None:
        world = self.client.world
        world.trace.add(world.loop.now, self.client.name, "reads", about)

    def _take(self, part: Any) -> None:  # noqa: ANN401 a partition of a FetchResponse
        read = self.load.history.read
        for record in records_of(part.records or memoryview(b"")):
            if record.offset < self.position:
                continue  # a batch is sent whole, also its first records
            if 0 <= part.high_watermark <= record.offset:
                raise Violation(f"{self.client.name} got {self.partition} {record.offset}, "
                                f"committed is {part.high_watermark}")
            assert record.key is not None
            read(self.client.name, self.partition, record.offset, record.key)
            self.position = record.offset + 1


def records_of(data: memoryview) -> Iterator[Record]:
    """Yield every record of consecutive batches; the last one may be incomplete."""
    for _, batch in batches_of(data):
        yield from decode_records(batch, size_max=RECORD_SIZE_MAX)


def batches_of(data: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield every batch, checked; the last one may be incomplete."""
    position = 0
    while len(data) - position >= 12:
        header_size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        if len(data) - position < header_size:
            return
        batch = data[position : position + header_size]
        header = parse_header(batch)
        if body_crc(batch) != header.crc:
            raise CorruptBatch(f"a batch at offset {header.base_offset} has a wrong CRC")
        yield header, batch
        position += header_size


async def create_topic(
    client: Client, load: Load, name: str, *, partitions: int, **configs: str
) -> None:
    """Create a topic, again until it exists; record the creation if it is acknowledged."""
    wanted = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=-1,
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value)
                 for key, value in configs.items()])
    while True:
        try:
            answer = await client.ask(
                client.anyone(), CreateTopicsRequest(topics=[wanted], timeout=3000), 7)
        except SimDisconnected:
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
            return  # the response to an earlier request was lost
        if topic.error_code not in RETRIED:
            raise Violation(f"{client.name} cannot create {name}: {Code(topic.error_code).name} "
                            f"{topic.error_message}")
        await asyncio.sleep(client.dice.between(0.05, 0.3))
        await client.refresh()


async def create_topics(client: Client, load: Load) -> None:
    """Create one topic after another."""
    number = 0
    while load.goes_on:
        await create_topic(client, load, f"{client.name}-{number}", partitions=1)
        number += 1
        await asyncio.sleep(client.dice.between(0.3, 1.5))

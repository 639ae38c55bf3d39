"""A broker of diskless topics in a simulated world: the real writer, reader and cleaner.

    TopicList          what all brokers know at once: the topics, and which producer ids are used
    DisklessBroker   a `Program`: one broker's process

A broker answers the requests of Kafka clients that concern diskless topics, in order on each
connection; nothing else of a node is here.  Every broker takes writes of every partition, and says
that a random one leads it, so that clients move between them.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from uuid import UUID

from quipu.diskless.cleaning.cleaner import DisklessCleaner
from quipu.diskless.cleaning.limits import CleaningLimits
from quipu.diskless.control_plane.interface import BatchOutcome, RetentionRule
from quipu.diskless.errors import ControlPlaneUnavailable
from quipu.diskless.reading.reader import DisklessRead, DisklessReader, ReaderLimits
from quipu.diskless.values import LogKey
from quipu.diskless.writing.limits import WriterLimits
from quipu.diskless.writing.writer import DisklessWriter
from quipu.model.errors import Code, OffsetOutOfRange, QuipuError
from quipu.model.ids import NodeId, Offset
from quipu.model.partition_log import PendingRead
from quipu.runtime.net.limits import NetLimits
from quipu.runtime.net.network import FrameConnection
from quipu.runtime.spawn import spawn
from quipu.sim.twins.control_plane import SimDatabase
from quipu.sim.world import Machine
from quipu.wire.frame import decode_request, encode_response
from quipu.wire.messages.k00_produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from quipu.wire.messages.k01_fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from quipu.wire.messages.k02_list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from quipu.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from quipu.wire.messages.k21_delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from quipu.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from quipu.wire.record_batch import check_batch
from quipu.wire.schema import Request, Response

CLIENT_PORT: Final = 9092
OPEN_SECONDS: Final = 0.2  # between two attempts to reach the control plane
BATCH_SIZE_MAX: Final = 1 << 20
EARLIEST: Final = -2
READ_SECONDS_MAX: Final = 3.0  # of a fetch, beyond the time that it may wait


@dataclass(slots=True, eq=False)
class TopicList:
    """What all brokers know at once."""

    names: tuple[str, ...]  # of the brokers; their ids are 1, 2, ...
    topics: dict[str, tuple[UUID, int]] = field(default_factory=dict)  # id, partition count
    retention: dict[UUID, tuple[int, int]] = field(default_factory=dict)  # ms, bytes
    next_producer_id: int = 1000

    def log(self, topic: str, partition: int) -> LogKey | None:
        """The log of a partition; None if there is no such topic."""
        found = self.topics.get(topic)
        return None if found is None or partition >= found[1] else LogKey(found[0], partition)

    def rules(self) -> list[RetentionRule]:
        """How long and how much of each log is kept."""
        return [RetentionRule(LogKey(topic_id, index), *self.retention.get(topic_id, (-1, -1)))
                for topic_id, count in self.topics.values() for index in range(count)]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPlan:
    """The limits of the brokers of one world."""

    writing: WriterLimits
    cleaning: CleaningLimits
    reading: ReaderLimits


class DisklessBroker:
    """A `Program`: one process of one broker."""

    def __init__(
        self, machine: Machine, database: SimDatabase, catalog: TopicList, plan: BrokerPlan
    ) -> None:
        self._machine = machine
        self._catalog = catalog
        self._plan = plan
        self._node_id = NodeId(catalog.names.index(machine.name) + 1)
        self._dice = machine.dice.fork(f"boot/{machine.boots}")
        self._plane = database.client(machine.door)
        self._waiting: dict[LogKey, dict[asyncio.Future[None], None]] = {}  # fetches

    async def start(self) -> None:
        machine, dice, plan = self._machine, self._dice, self._plan
        store, plane, clock = machine.objects, self._plane, machine.clock
        while True:
            try:
                await plane.open()
                break
            except ControlPlaneUnavailable:
                await asyncio.sleep(OPEN_SECONDS)
        self.reader = DisklessReader(
            store, plane, clock, limits=plan.reading, on_advance=self._advanced)
        self.reader.start()
        self.writer = DisklessWriter(
            store, plane, clock, dice.fork("writer"), node_id=self._node_id, limits=plan.writing,
            on_committed=self.reader.committed)
        self.cleaner = DisklessCleaner(
            store, plane, clock, dice.fork("cleaner"), node_id=self._node_id,
            live_nodes=self._live_nodes, rules=self._catalog.rules, limits=plan.cleaning)
        self._cleaning = spawn(self.cleaner.run(), "clean")
        self._server = machine.door.frame_server(self._accept, NetLimits())
        self._server.bind(machine.name, CLIENT_PORT)
        self._server.serve()

    async def stop(self) -> None:
        self._server.stop_accepting()
        await self.cleaner.stop()
        await self.writer.close()
        await self._server.close()
        await self.reader.close()
        await self._plane.close()

    def _live_nodes(self) -> list[NodeId]:
        machines = self._machine.world.machines
        return [NodeId(place + 1) for place, name in enumerate(self._catalog.names)
                if machines[name].is_up]

    def _accept(self, connection: FrameConnection) -> "Conversation":
        return Conversation(self, connection)

    def _advanced(self, log: LogKey) -> None:
        """The high watermark of a log has grown: wake the fetches that wait for it."""
        for waiting in self._waiting.pop(log, {}):
            if not waiting.done():
                waiting.set_result(None)

    # -- requests

    def answer(self, request: Request, answered: Callable[[Response], None]) -> None:
        """Answer one request, now or later."""
        match request:
            case ProduceRequest():
                self._produce(request, answered)
            case FetchRequest():
                self._run(self._fetch(request), answered)
            case ListOffsetsRequest():
                self._run(self._list_offsets(request), answered)
            case DeleteRecordsRequest():
                self._run(self._delete_records(request), answered)
            case MetadataRequest():
                answered(self._metadata())
            case InitProducerIdRequest():
                self._catalog.next_producer_id += 1
                answered(InitProducerIdResponse(
                    producer_id=self._catalog.next_producer_id, producer_epoch=0))
            case _:
                raise AssertionError(request)

    def _run(
        self, work: Coroutine[Any, Any, Response], answered: Callable[[Response], None]
    ) -> None:
        async def run() -> None:
            answered(await work)

        spawn(run(), "request")

    def _metadata(self) -> MetadataResponse:
        """All topics; a broker that seems to be up, mostly, leads each partition."""
        names = self._catalog.names
        up = self._live_nodes() if self._dice.flip(0.8) else []
        leaders = up or [NodeId(place + 1) for place in range(len(names))]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=place + 1, host=name, port=CLIENT_PORT)
                     for place, name in enumerate(names)],
            topics=[MetadataResponseTopic(name=topic, partitions=[
                MetadataResponsePartition(
                    partition_index=index, leader_id=self._dice.choose(leaders), leader_epoch=0)
                for index in range(count)])
                for topic, (_, count) in self._catalog.topics.items()])

    # -- writing

    def _produce(
        self, request: ProduceRequest, answered: Callable[[Response], None]
    ) -> None:
        """Append the one batch of a request; answer when its outcome is known."""
        topic, (part,) = request.topic_data[0].name, request.topic_data[0].partition_data

        def done(outcome: BatchOutcome | QuipuError) -> None:
            base = -1 if isinstance(outcome, QuipuError) else int(outcome.base_offset)
            message = str(outcome) if isinstance(outcome, QuipuError) else None
            answered(ProduceResponse(responses=[TopicProduceResponse(
                name=topic, partition_responses=[PartitionProduceResponse(
                    index=part.index, error_code=outcome.code, base_offset=base,
                    error_message=message)])]))

        log = self._catalog.log(topic, part.index)
        if log is None:
            done(BatchOutcome(Code.UNKNOWN_TOPIC_OR_PARTITION))
            return
        assert part.records is not None
        header = check_batch(part.records, size_max=BATCH_SIZE_MAX)
        try:
            self.writer.append(log, part.records, header, done)
        except QuipuError as error:
            done(error)

    # -- reading

    async def _fetch(self, request: FetchRequest) -> FetchResponse:
        topic, (part,) = request.topics[0].topic, request.topics[0].partitions
        data = PartitionData(partition_index=part.partition, high_watermark=-1)
        log = self._catalog.log(topic, part.partition)
        if log is None:
            data.error_code = Code.UNKNOWN_TOPIC_OR_PARTITION
        else:
            try:
                await self._read(log, part.fetch_offset, part.partition_max_bytes,
                                 request.max_wait / 1000, data)
            except QuipuError as error:
                data.error_code = error.code
                bounds = self.reader.bounds(log)
                if isinstance(error, OffsetOutOfRange) and bounds is not None:
                    data.high_watermark = bounds.high_watermark
                    data.log_start_offset = bounds.log_start_offset
        return FetchResponse(responses=[FetchableTopicResponse(topic=topic, partitions=[data])])

    async def _read(
        self, log: LogKey, offset: int, max_bytes: int, seconds: float, data: PartitionData
    ) -> None:
        """Read until there are records, or the time is over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        pending: PendingRead | None = None
        try:
            while True:
                woken: asyncio.Future[None] = loop.create_future()
                self._waiting.setdefault(log, {})[woken] = None
                before, pending = pending, None
                try:
                    read = self.reader.read(log, Offset(offset), max_bytes, min_one=True)
                finally:
                    if before is not None:
                        before.cancel()  # after the read above, which uses the bytes
                if isinstance(read, DisklessRead):
                    data.high_watermark = read.bounds.high_watermark
                    data.log_start_offset = read.bounds.log_start_offset
                    data.records = memoryview(b"".join(read.buffers))
                    if read.size or loop.time() >= deadline:
                        return
                    await _woken(woken, deadline)
                else:
                    pending = read
                    pending.when_arrived(partial(_wake, woken))
                    if not await _woken(woken, deadline + READ_SECONDS_MAX):
                        raise QuipuError("no bytes in time", code=Code.KAFKA_STORAGE_ERROR)
        finally:
            if pending is not None:
                pending.cancel()

    async def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        topic, (part,) = request.topics[0].name, request.topics[0].partitions
        found = ListOffsetsPartitionResponse(partition_index=part.partition_index)
        log = self._catalog.log(topic, part.partition_index)
        bounds = None
        if log is not None:
            try:
                await self.reader.refresh([log])
                bounds = self.reader.bounds(log)
            except QuipuError as error:
                found.error_code = error.code
        if bounds is not None:
            found.offset = (bounds.log_start_offset if part.timestamp == EARLIEST
                            else bounds.high_watermark)
        elif not found.error_code:
            found.error_code = Code.UNKNOWN_TOPIC_OR_PARTITION
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(
            name=topic, partitions=[found])])

    async def _delete_records(self, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
        topic, (part,) = request.topics[0].name, request.topics[0].partitions
        result = DeleteRecordsPartitionResult(
            partition_index=part.partition_index, low_watermark=-1)
        log = self._catalog.log(topic, part.partition_index)
        bounds = None
        if log is not None:
            try:
                bounds = await self._plane.delete_records(
                    log, Offset(part.offset), self._machine.clock.now_ms())
            except QuipuError as error:
                result.error_code = error.code
        if bounds is not None:
            result.low_watermark = bounds.log_start_offset
        elif not result.error_code:
            result.error_code = Code.UNKNOWN_TOPIC_OR_PARTITION
        return DeleteRecordsResponse(topics=[DeleteRecordsTopicResult(
            name=topic, partitions=[result])])


class Conversation:
    """A client's connection: answers go out in the order of the requests."""

    def __init__(self, broker: DisklessBroker, connection: FrameConnection) -> None:
        self._broker = broker
        self._connection = connection
        self._answers: deque[list[bytes]] = deque()  # of requests in order; empty: not known yet

    def frame_received(self, frame: memoryview) -> None:
        header, request = decode_request(frame)
        slot: list[bytes] = []
        self._answers.append(slot)

        def answered(response: Response) -> None:
            slot.append(encode_response(header.correlation_id, response, header.api_version))
            while self._answers and self._answers[0]:
                self._connection.send(list(self._answers.popleft()))

        self._broker.answer(request, answered)
        writer = self._broker.writer
        if writer.is_full and not self._connection.closed:
            self._connection.pause()
            writer.when_room(self._connection.resume)

    def drained(self) -> None:
        """Do nothing: all that was answered has been sent."""

    def connection_lost(self) -> None:
        """Do nothing: batches of a client that is gone are written all the same."""


async def _woken(waiting: "asyncio.Future[None]", deadline: float) -> bool:
    """Wait until a fetch is woken, or for the deadline; whether it was woken."""
    try:
        async with asyncio.timeout_at(deadline):
            await waiting
    except TimeoutError:
        return False
    return True


def _wake(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)

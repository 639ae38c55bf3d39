"""An idempotent producer with several batches in flight, which follows librdkafka's rules.

Up to five batches are in flight at once, sent in order without waiting for responses.  It handles
each response as librdkafka does (rdkafka_request.c, `handle_Produce_error`):

    NONE                      acknowledged
    DUPLICATE_SEQUENCE_NUMBER acknowledged, at an unknown offset
    any retriable error       nothing more is sent until every response has come; then all that is
                              not acknowledged is sent again, in order, with the same sequences
    OUT_OF_ORDER_SEQUENCE_NUMBER
                              if records before it are not acknowledged: the same, but in a new
                              producer epoch, which it chooses itself, and numbered from 0: batches
                              in flight that had been written are written twice
    the same for any other batch, and all other errors
                              fatal: the producer cannot continue
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from quipu.model.errors import Code
from quipu.sim.twins.frames import ClientLink, SimDisconnected
from quipu.sim.workloads.client import ASK_SECONDS_MAX, BrokerAddress, Client
from quipu.sim.workloads.history import TopicPartition
from quipu.sim.workloads.traffic import (
    ALL,
    PRODUCE_VERSION,
    RETRIED,
    Load,
    batch_of,
    producer_id_for,
)
from quipu.sim.world import Violation
from quipu.wire.frame import decode_response, encode_request
from quipu.wire.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from quipu.wire.record_batch import Record, encode_batch

IN_FLIGHT_MAX: Final = 5  # as many batches as a broker remembers of a producer
BEGIN_AGAIN: Final = 0.3  # probability of a new producer id after a window


@dataclass(slots=True, eq=False)
class _Batch:
    start: int  # number of its first record, over the producer's life
    values: list[bytes]
    records: list[Record]

    @property
    def end(self) -> int:
        return self.start + len(self.values)


@dataclass(slots=True, eq=False)
class WindowedProducer:
    """One producer for one partition; every record exactly once, and in order."""

    client: Client
    load: Load
    partition: TopicPartition
    producer_id: int = -1
    epoch: int = 0
    epoch_start: int = 0  # number of the record that has sequence 0
    next_number: int = 0
    next_acked: int = 0  # number of the record after the last acknowledged one
    window: list[_Batch] = field(default_factory=list)  # not acknowledged, in order
    bump_due: bool = False
    timeout_ms: int = 2000  # of one request, for the other nodes

    async def run(self) -> None:
        """Produce until the load ends and all is acknowledged."""
        self.load.history.in_order(self.client.name)
        await self._begin()
        dice, load = self.client.dice, self.load
        while load.goes_on or self.window:
            if load.goes_on and not self.window and dice.flip(BEGIN_AGAIN):
                await self._begin()
            if load.goes_on:
                self._fill(IN_FLIGHT_MAX if dice.flip(0.7) else 1 + dice.below(IN_FLIGHT_MAX))
            if not await self._send_window():
                await asyncio.sleep(dice.between(0.02, 0.25))
            await asyncio.sleep(dice.between(load.pause_min, load.pause_max))

    async def _begin(self) -> None:
        """Start as a new process does: with a new producer id, and sequence 0."""
        self.producer_id = await producer_id_for(self.client)
        self.epoch, self.epoch_start = 0, self.next_number

    def _fill(self, count: int) -> None:
        while len(self.window) < count:
            values, records = batch_of(self.client, self.load, self.next_number)
            self.window.append(_Batch(self.next_number, values, records))
            self.next_number += len(values)
            for value in values:
                self.load.history.sent(value)

    async def _send_window(self) -> bool:
        """Send all unacknowledged batches and handle the responses; False if any failed."""
        topic, index = self.partition
        place = await self.client.leader(topic, index)
        sent: list[tuple[int, _Batch]] = []
        try:
            link = await self.client.link(place)
            self.timeout_ms = self.client.dice.choose([100, 400, 2000])
            spacing = self.client.dice.choose([0.0, 0.01, 0.15, 0.8])  # sometimes slow
            for batch in list(self.window):
                sent.append((self._send(link, batch), batch))
                await asyncio.sleep(spacing * self.client.dice.random())
            went_well = True
            for number, batch in sent:
                async with asyncio.timeout(ASK_SECONDS_MAX):
                    frame = await link.answer()
                went_well &= self._answered(place, number, batch, frame)
        except (TimeoutError, SimDisconnected):
            self.client.drop(place)
            went_well = False
        if not went_well:
            self.client.forget_leader(topic, index)
        if self.bump_due:  # no batch is in flight any more
            self.bump_due = False
            self.epoch += 1
            self.epoch_start = self.window[0].start if self.window else self.next_number
        return went_well

    def _send(self, link: ClientLink, batch: _Batch) -> int:
        topic, index = self.partition
        data = encode_batch(
            batch.records, producer_id=self.producer_id, producer_epoch=self.epoch,
            base_sequence=batch.start - self.epoch_start)
        number = self.client.next_id()
        link.send(encode_request(ProduceRequest(acks=ALL, timeout=self.timeout_ms, topic_data=[
            TopicProduceData(name=topic, partition_data=[
                PartitionProduceData(index=index, records=memoryview(bytes(data)))])]),
            PRODUCE_VERSION, correlation_id=number, client_id=self.client.name))
        return number

    def _answered(self, place: BrokerAddress, number: int, batch: _Batch, frame: bytes) -> bool:
        """Handle one response; True if the batch is acknowledged."""
        correlation_id, answer = decode_response(memoryview(frame), 0, PRODUCE_VERSION)
        assert isinstance(answer, ProduceResponse)
        assert correlation_id == number, "responses out of order (Q1)"
        part = answer.responses[0].partition_responses[0]
        world, code = self.client.world, Code(part.error_code)
        world.trace.add(world.loop.now, self.client.name, "produced", (
            f"{self.partition[0]}-{self.partition[1]} {batch.start} epoch {self.epoch} "
            f"{code.name} {part.base_offset}"))
        if code in (Code.NONE, Code.DUPLICATE_SEQUENCE_NUMBER):
            world.happened("ack", place.host)
            self.window.remove(batch)  # mostly the first; one before it may have timed out
            self.next_acked = batch.end
            if code is Code.NONE:
                for place_in_batch, value in enumerate(batch.values):
                    self.load.history.acked(
                        self.partition, part.base_offset + place_in_batch, value)
            return True
        if code is Code.OUT_OF_ORDER_SEQUENCE_NUMBER and batch.start > self.next_acked:
            self.bump_due = True
        elif code not in RETRIED:
            raise Violation(f"{self.client.name}: a batch for {self.partition} that follows "
                            f"acknowledged ones was refused: {code.name} {part.error_message}")
        return False

"""Clients of a compacted topic: producers that replace values, readers that build the table.

Each producer has keys of its own, and numbers what it writes for one after the other; the number is
in a header, also of a tombstone.  A reader reads the whole log, again and again.

    newest-value    a table lacks a key's newest value: one that was acknowledged before the reader
                    began to read is gone, and no newer one is there
    phantom-read    a value that nobody wrote for that key
    nonmonotonic-poll  a key's values are out of order
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

from quipu.model.errors import Code
from quipu.sim.twins.frames import SimDisconnected
from quipu.sim.workloads.client import Client
from quipu.sim.workloads.history import TopicPartition
from quipu.sim.workloads.traffic import (
    RECORD_SIZE_MAX,
    Consumer,
    Load,
    batches_of,
    producer_id_for,
    until_acked,
)
from quipu.sim.world import BEGAN_MS, Violation
from quipu.wire.record_batch import Record, decode_records, encode_batch

KEYS: Final = 5  # of one producer
TOMBSTONE: Final = 0.1  # probability
NUMBER: Final = "number"  # a header


@dataclass(slots=True, eq=False)
class KeyLedger:
    """What was written for each key: what a reader may find, and must find."""

    sent: dict[tuple[bytes, int], bytes | None] = field(default_factory=dict)  # by key and number
    acked: dict[bytes, int] = field(default_factory=dict)  # the newest number of each key
    end: int = 0  # the offset after the last record that was acknowledged, as far as known

    def check(self, reader: str, table: dict[bytes, int], least: dict[bytes, int]) -> None:
        """Raise unless `table` has, for each key, what `least` has, or something newer."""
        for key, number in least.items():
            if table.get(key, -1) < number:
                raise Violation(f"newest-value: {reader} found {table.get(key)} for {key!r}; "
                                f"{number} was acknowledged before")


async def produce_keyed(
    client: Client, load: Load, ledger: KeyLedger, partition: TopicPartition
) -> None:
    """Replace values of a few keys, each batch until it is acknowledged."""
    producer_id, dice, number, sequence = await producer_id_for(client), client.dice, 0, 0
    unknown: dict[bytes, int] = {}  # acknowledged at an unknown offset
    while load.goes_on:
        now_ms = BEGAN_MS + int(client.world.loop.now * 1000)
        records, written = [], {}
        for _ in range(1 + dice.below(3)):
            key = f"{client.name}/{dice.below(KEYS)}".encode()
            value = None if dice.flip(TOMBSTONE) else b"." * dice.below(load.payload_max + 1)
            records.append(Record(key, value, ((NUMBER, b"%d" % number),), now_ms))
            ledger.sent[key, number] = value
            written[key] = number
            number += 1
        offset = await until_acked(client, partition, bytes(encode_batch(
            records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)))
        sequence += len(records)
        if offset >= 0:  # else a later batch says that this one is acknowledged, too
            ledger.acked.update(unknown | written)
            ledger.end = max(ledger.end, offset + len(records))
        unknown = {} if offset >= 0 else unknown | written
        await asyncio.sleep(dice.between(load.pause_min, load.pause_max))


@dataclass(slots=True, eq=False)
class TableReader(Consumer):
    """Reads a compacted partition from its start to its end, again and again."""

    ledger: KeyLedger = field(default_factory=KeyLedger)
    table: dict[bytes, int] = field(default_factory=dict)  # the number of each key's last value
    is_done: bool = False  # it has read everything once more after the load

    async def run(self) -> None:
        """Build tables while there is load; then one more."""
        while not self.is_done:
            is_last = not self.load.goes_on
            least, end = dict(self.ledger.acked), self.ledger.end
            self.position, self.table = 0, {}
            while self.position < end:
                await self._polled()
            self.ledger.check(self.client.name, self.table, least)
            self.is_done = is_last
            await asyncio.sleep(self.client.dice.between(0.05, 0.5))

    async def _polled(self) -> None:
        try:
            code = await self._poll()
        except SimDisconnected:
            code = Code.NETWORK_EXCEPTION
        if code != Code.NONE:
            self._record(f"{Code(code).name} at {self.position}")
            self.read_from = None
            self.client.forget_leader(*self.partition)
            await asyncio.sleep(self.client.dice.between(0.02, 0.2))

    def _take(self, part: Any) -> None:  # noqa: ANN401 a partition of a FetchResponse
        for header, batch in batches_of(part.records or memoryview(b"")):
            for record in decode_records(batch, size_max=RECORD_SIZE_MAX):
                if record.offset >= self.position:
                    self._note(record)
            self.position = max(self.position, header.last_offset + 1)

    def _note(self, record: Record) -> None:
        assert record.key is not None
        key, number = record.key, int(dict(record.headers)[NUMBER] or b"")
        if self.ledger.sent.get((key, number), self) != record.value:
            raise Violation(f"phantom-read: {self.client.name} got {record} at {self.partition}")
        if number <= self.table.get(key, -1):
            raise Violation(f"nonmonotonic-poll: {self.client.name} got {number} of {key!r} after "
                            f"{self.table[key]} at {self.partition} {record.offset}")
        self.table[key] = number

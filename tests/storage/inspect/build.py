"""Logs made by hand, batch by batch, for tests that damage them."""

import struct
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from crc32c import crc32c

from quipu.model.batch_types import CHECKPOINT, DATA
from quipu.model.ids import LogOffset
from quipu.storage.derived.checkpoint import Checkpoint, DerivedState, encode_checkpoint
from quipu.wire.record_batch import Record, encode_batch
from quipu.wire.stored_batch import pack_prefix

START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
TOPIC_ID = UUID(int=5)


class LogBuilder:
    """Appends stored batches in memory; `write` makes the files."""

    def __init__(self, name: str = "orders-0", *, epoch: int = 1) -> None:
        self.name = name
        self.epoch = epoch
        self.log_offset = 0
        self.offset = 0
        self.segments: dict[int, list[bytes]] = {}
        self.roll()

    def roll(self) -> None:
        """Start a segment, with its checkpoint."""
        self.segments[self.log_offset] = []
        checkpoint = Checkpoint(self.name, TOPIC_ID, LogOffset(0), DerivedState())
        self.append(encode_checkpoint(checkpoint, START_MS), batch_type=CHECKPOINT)

    def append(
        self, records: Sequence[Record], *, batch_type: int = DATA, compression: int = 0
    ) -> bytes:
        batch = encode_batch(records, base_offset=self.offset, leader_epoch=self.epoch,
                             compression=compression)
        stored = pack_prefix(batch, batch_type=batch_type, log_offset=self.log_offset) + batch
        list(self.segments.values())[-1].append(bytes(stored))
        self.log_offset += len(records)
        if batch_type == DATA:
            self.offset += len(records)
        return bytes(stored)

    def data(self, count: int = 2, *, compression: int = 0) -> bytes:
        """A batch of `count` data records, one millisecond apart."""
        return self.append(
            [Record(b"key %d" % (self.offset + i), b"value %d" % (self.offset + i), (),
                    START_MS + self.offset + i) for i in range(count)],
            compression=compression)

    def bytes(self, number: int = 0) -> bytes:
        """The bytes of one segment."""
        return b"".join(list(self.segments.values())[number])

    def write(self, directory: Path) -> Path:
        """The log under `directory`; gives its own directory."""
        path = directory / self.name
        path.mkdir(parents=True, exist_ok=True)
        for first, batches in self.segments.items():
            (path / f"{first:020d}.log").write_bytes(b"".join(batches))
        return path


def three_segments() -> LogBuilder:
    """Three segments of a checkpoint and three data batches: offsets 0 to 17."""
    builder = LogBuilder()
    for number in range(3):
        if number:
            builder.roll()
        for _ in range(3):
            builder.data(2)
    return builder


def make_header_sound(data: bytearray, position: int) -> None:
    """Give the header at `position` the checksum that its bytes have now."""
    covered = bytes(data[position + 4 : position + 37])
    struct.pack_into(">I", data, position, crc32c(covered))


def flip(path: Path, position: int) -> None:
    """Flip one bit of a file."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)

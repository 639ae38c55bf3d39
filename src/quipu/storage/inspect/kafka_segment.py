"""The files of a segment as Apache Kafka writes them: which batches, and what the indexes say.

    <base offset, 20 digits>.log         Kafka's batches, one after the other
    <base offset, 20 digits>.index       i32 offset - base · i32 position, of a batch every 4 KiB
    <base offset, 20 digits>.timeindex   i64 timestamp · i32 offset - base: the largest timestamp up
                                         to each batch of the index, and of the whole segment
    leader-epoch-checkpoint              the first offset of each leader epoch, as text

The offset of a batch in an index is its last one.  Pure: takes headers, returns bytes.
"""

from struct import Struct
from typing import Final

from quipu.model.ids import NO_TIMESTAMP
from quipu.wire.stored_batch import PREFIX_SIZE, StoredHeader

INDEX_INTERVAL_SIZE: Final = 4096  # Kafka's log.index.interval.bytes
SEGMENT_SIZE_MAX: Final = (1 << 31) - 1  # positions have 32 bits, ...
SEGMENT_SPAN_MAX: Final = (1 << 31) - 1  # ... and so have offsets within a segment
EPOCHS_NAME: Final = "leader-epoch-checkpoint"

_OFFSET_ENTRY: Final = Struct(">ii")
_TIME_ENTRY: Final = Struct(">qi")


class KafkaSegment:
    """What is known of one segment while its batches are written."""

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.size = 0  # of the .log file
        self.offset_index = bytearray()
        self._time_index = bytearray()
        self._since_entry = 0  # bytes since the last entry
        self._newest: tuple[int, int] = (NO_TIMESTAMP, base_offset)  # largest timestamp, its offset
        self._indexed_timestamp: int = NO_TIMESTAMP

    @property
    def name(self) -> str:
        """Of its files, without a suffix."""
        return f"{self.base_offset:020d}"

    def has_room(self, header: StoredHeader) -> bool:
        """Whether a batch can be part of this segment."""
        return (self.size + header.size - PREFIX_SIZE <= SEGMENT_SIZE_MAX
                and header.next_offset - 1 - self.base_offset <= SEGMENT_SPAN_MAX)

    def add(self, header: StoredHeader) -> None:
        """Note that a batch is written at the end of the file."""
        last_offset = header.next_offset - 1
        if header.max_timestamp > self._newest[0]:
            self._newest = header.max_timestamp, last_offset
        if self._since_entry > INDEX_INTERVAL_SIZE:
            self.offset_index += _OFFSET_ENTRY.pack(last_offset - self.base_offset, self.size)
            self._index_newest()
            self._since_entry = 0
        size = header.size - PREFIX_SIZE
        self.size += size
        self._since_entry += size

    def time_index(self) -> bytes:
        """The time index, with the entry that Kafka adds when a segment is complete."""
        self._index_newest()
        return bytes(self._time_index)

    def _index_newest(self) -> None:
        timestamp, offset = self._newest
        if timestamp > self._indexed_timestamp:
            self._time_index += _TIME_ENTRY.pack(timestamp, offset - self.base_offset)
            self._indexed_timestamp = timestamp


class LeaderEpochs:
    """The leader epochs of a partition's batches."""

    def __init__(self) -> None:
        self._starts: list[tuple[int, int]] = []  # epoch, first offset

    def add(self, epoch: int, base_offset: int) -> None:
        """Note the epoch of the next batch."""
        if epoch >= 0 and (not self._starts or epoch > self._starts[-1][0]):
            self._starts.append((epoch, base_offset))

    def text(self) -> bytes:
        """The content of Kafka's checkpoint file."""
        lines = ["0", str(len(self._starts)), *(f"{epoch} {at}" for epoch, at in self._starts)]
        return "".join(f"{line}\n" for line in lines).encode()

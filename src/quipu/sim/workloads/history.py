"""The responses that clients got, and contradictions between them.

Each response is compared with the earlier ones as it arrives.  The names of the violations are
those of Jepsen's Kafka workload:

    inconsistent-offsets   one offset with two values
    duplicate              one value at two offsets
    phantom-read           a value was read that no client sent
    aborted-read           a value was read whose sender got an error that excludes this
    nonmonotonic-poll      one reader's offsets went backwards, or repeated
    poll-skip              one reader skipped offsets
    lost-write             a value was acknowledged with acks=all, and cannot be read in the end
    twice-created          the creation of one topic was acknowledged twice
    reordered              records of one producer with several batches in flight are out of order

Acknowledgements with acks=1 are not recorded: they guarantee nothing.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Final

from quipu.sim.world import Violation

TopicPartition = tuple[str, int]
UNKNOWN: Final = -2  # the last number of a producer that a reader got


class ClientHistory:
    """The responses that the clients of one world got."""

    def __init__(self) -> None:
        self.topics: dict[str, str] = {}  # whose creation was acknowledged: name -> topic id
        self.on_acked: Callable[[TopicPartition, int], None] = lambda _partition, _offset: None
        self.acked_count = 0
        self.read_count = 0
        self._sent: dict[bytes, bool] = {}  # value -> whether it may have been stored
        self._values: dict[TopicPartition, dict[int, bytes]] = defaultdict(dict)
        self._places: dict[bytes, tuple[TopicPartition, int]] = {}
        self._acked: dict[TopicPartition, dict[int, bytes]] = defaultdict(dict)
        self._last_read: dict[tuple[str, TopicPartition], int] = {}
        self._in_order: dict[bytes, dict[tuple[str, TopicPartition], int]] = {}

    def sent(self, value: bytes) -> None:
        """A client is about to send `value`, for the first time or again."""
        self._sent[value] = True

    def in_order(self, producer: str) -> None:
        """Check that the values of `producer`, "name-0", "name-1", ..., are read in order."""
        self._in_order[producer.encode()] = {}

    def refused(self, value: bytes) -> None:
        """`value` was refused with an error that excludes that it is stored; it is not retried."""
        self._sent[value] = False
        if value in self._places:
            raise Violation(f"aborted-read: {value!r} at {self._places[value]} was refused")

    def acked(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        """`value` was acknowledged at `offset` with acks=all."""
        self.acked_count += 1
        self.on_acked(partition, offset)
        self._observed(partition, offset, value)
        self._acked[partition][offset] = value

    def read(self, reader: str, partition: TopicPartition, offset: int, value: bytes) -> None:
        """`reader` got `value` as a committed record."""
        self.read_count += 1
        if value not in self._sent:
            raise Violation(f"phantom-read: {reader} got {value!r} at {partition} {offset}")
        if not self._sent[value]:
            raise Violation(f"aborted-read: {reader} got {value!r} at {partition} {offset}")
        before = self._last_read.get((reader, partition))
        if before is not None and offset <= before:
            raise Violation(f"nonmonotonic-poll: {reader} got {partition} {offset} after {before}")
        if before is not None and offset > before + 1:
            raise Violation(f"poll-skip: {reader} got {partition} {offset} after {before}")
        self._last_read[reader, partition] = offset
        self._observed(partition, offset, value)
        producer, _, number = value.rpartition(b"-")
        if (numbers := self._in_order.get(producer)) is not None:
            last = numbers.get((reader, partition), -1)
            if last != UNKNOWN and int(number) != last + 1:
                raise Violation(f"reordered: {reader} got {value!r} at {partition} {offset}, "
                                f"{last + 1} comes next of {producer!r}")
            numbers[reader, partition] = int(number)

    def _observed(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        found = self._values[partition].setdefault(offset, value)
        if found != value:
            raise Violation(
                f"inconsistent-offsets: {partition} {offset} is {found!r} and {value!r}")
        place = self._places.setdefault(value, (partition, offset))
        if place != (partition, offset):
            raise Violation(f"duplicate: {value!r} at {place} and at {(partition, offset)}")

    def skipped(self, reader: str, partition: TopicPartition, start: int) -> None:
        """`reader` goes on at `start`, because the records before it were deleted."""
        self._last_read[reader, partition] = start - 1
        for numbers in self._in_order.values():
            numbers[reader, partition] = UNKNOWN

    def created(self, topic: str, topic_id: str) -> None:
        """The creation of `topic` was acknowledged."""
        if topic in self.topics:
            raise Violation(f"twice-created: {topic} is {self.topics[topic]} and {topic_id}")
        self.topics[topic] = topic_id

    # -- in the end

    def partitions(self) -> list[TopicPartition]:
        """Every partition of which a record is known."""
        return sorted(self._values)

    def end(self, partition: TopicPartition) -> int:
        """The offset after the last record that is known."""
        return max(self._values[partition], default=-1) + 1

    def values(self, partition: TopicPartition) -> dict[int, bytes]:
        """What clients got, by offset."""
        return self._values[partition]

    def missing(self, partition: TopicPartition, readers: list[str]) -> None:
        """Raise if one of `readers`, which began at 0, has not read every acknowledged record."""
        for reader in readers:
            last = self._last_read.get((reader, partition), -1)
            for offset, value in sorted(self._acked[partition].items()):
                if offset > last:
                    raise Violation(f"lost-write: {value!r} acknowledged at {partition} {offset}; "
                                    f"{reader} found nothing after {last}")

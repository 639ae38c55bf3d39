"""What clients were told, and whether it can all be true.

Each fact is compared with the earlier ones as it arrives.  The names of what can go wrong are
those of Jepsen's Kafka workload:

    inconsistent-offsets   one offset with two values
    duplicate              one value at two offsets
    phantom-read           read, although nobody sent it
    aborted-read           read, although its sender was told that it was not taken
    nonmonotonic-poll      one reader's offsets went backwards, or repeated
    poll-skip              one reader's offsets jumped over others
    lost-write             acknowledged by all, and not there in the end
    twice-created          one topic, created twice by answer
    reordered              records of one producer with a window, not in the order it sent them

Only what is promised is remembered: an acknowledgement by the head alone promises nothing.
"""

from collections import defaultdict
from collections.abc import Callable

from quipu.sim.world import Violation

TopicPartition = tuple[str, int]


class History:
    """The facts of one world."""

    def __init__(self) -> None:
        self.topics: dict[str, str] = {}  # created by answer: name -> topic id
        self.on_acked: Callable[[TopicPartition, int], None] = lambda _partition, _offset: None
        self.acked_count = 0
        self.read_count = 0
        self._sent: dict[bytes, bool] = {}  # value -> may it have been taken?
        self._values: dict[TopicPartition, dict[int, bytes]] = defaultdict(dict)
        self._places: dict[bytes, tuple[TopicPartition, int]] = {}
        self._acked: dict[TopicPartition, dict[int, bytes]] = defaultdict(dict)
        self._last_read: dict[tuple[str, TopicPartition], int] = {}
        self._in_order: dict[bytes, dict[tuple[str, TopicPartition], int]] = {}

    def sent(self, value: bytes) -> None:
        """Somebody is about to send `value`, for the first time or again."""
        self._sent[value] = True

    def in_order(self, producer: str) -> None:
        """The values of `producer`, "name-0", "name-1", ..., are stored in this order, or not."""
        self._in_order[producer.encode()] = {}

    def refused(self, value: bytes) -> None:
        """The sender of `value` was told that it was not taken, and will not send it again."""
        self._sent[value] = False
        if value in self._places:
            raise Violation(f"aborted-read: {value!r} at {self._places[value]} was refused")

    def acked(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        """The whole chain has `value`, at `offset`."""
        self.acked_count += 1
        self.on_acked(partition, offset)
        self._observed(partition, offset, value)
        self._acked[partition][offset] = value

    def read(self, reader: str, partition: TopicPartition, offset: int, value: bytes) -> None:
        """`reader` was given `value` as a committed record."""
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
            wanted = numbers.get((reader, partition), -1) + 1
            if int(number) != wanted:
                raise Violation(f"reordered: {reader} got {value!r} at {partition} {offset}, "
                                f"{wanted} comes next of {producer!r}")
            numbers[reader, partition] = wanted

    def _observed(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        found = self._values[partition].setdefault(offset, value)
        if found != value:
            raise Violation(
                f"inconsistent-offsets: {partition} {offset} is {found!r} and {value!r}")
        place = self._places.setdefault(value, (partition, offset))
        if place != (partition, offset):
            raise Violation(f"duplicate: {value!r} at {place} and at {(partition, offset)}")

    def created(self, topic: str, topic_id: str) -> None:
        """The creation of `topic` was acknowledged."""
        if topic in self.topics:
            raise Violation(f"twice-created: {topic} is {self.topics[topic]} and {topic_id}")
        self.topics[topic] = topic_id

    # -- in the end

    def partitions(self) -> list[TopicPartition]:
        """Every partition of which anything is known."""
        return sorted(self._values)

    def end(self, partition: TopicPartition) -> int:
        """After the last record that anybody knows of."""
        return max(self._values[partition], default=-1) + 1

    def missing(self, partition: TopicPartition, readers: list[str]) -> None:
        """Was all that was acknowledged read by each of `readers` since it began at 0?"""
        for reader in readers:
            last = self._last_read.get((reader, partition), -1)
            for offset, value in sorted(self._acked[partition].items()):
                if offset > last:
                    raise Violation(f"lost-write: {value!r} acknowledged at {partition} {offset}; "
                                    f"{reader} found nothing after {last}")

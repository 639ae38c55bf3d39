"""Numbers with names: one type per kind of number, so that two kinds cannot be mixed up.

Ranges are half-open throughout: `start` is in, `end` and `next` are out.  Only names that
begin with `last_` are inclusive, because Kafka's format is.
"""

from typing import Final, NamedTuple, NewType
from uuid import UUID

Offset = NewType("Offset", int)  # index of a record as Kafka clients count, 0-based
LogOffset = NewType("LogOffset", int)  # index of a record counting internal ones too, 0-based
Position = NewType("Position", int)  # index of a byte within a segment file, 0-based
Epoch = NewType("Epoch", int)  # reign of one leader; only ever grows
NodeId = NewType("NodeId", int)  # a broker's number in Kafka's protocol
Term = NewType("Term", int)  # reign of one controller, as Raft counts; only ever grows
RaftIndex = NewType("RaftIndex", int)  # of an entry of the metadata log; the first has 1
ProducerId = NewType("ProducerId", int)  # given to an idempotent producer; never reused
TimestampMs = NewType("TimestampMs", int)  # milliseconds since 1970-01-01 UTC

NO_TIMESTAMP: Final = TimestampMs(-1)
NO_EPOCH: Final = Epoch(-1)
NO_NODE: Final = NodeId(-1)  # "no leader" on the wire
ZERO_UUID: Final = UUID(int=0)  # "no topic id" on the wire


class TopicPartition(NamedTuple):
    """One partition of one topic, by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

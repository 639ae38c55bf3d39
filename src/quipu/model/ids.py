"""One type per kind of number, so that the type checker finds an offset used as an epoch.

Ranges are half-open throughout: `start` is included, `end` and `next` are not.  Only names that
begin with `last_` are inclusive, because Kafka's format is.
"""

from typing import Final, NamedTuple, NewType
from uuid import UUID

Offset = NewType("Offset", int)  # index of a record as Kafka clients count them, 0-based
LogOffset = NewType("LogOffset", int)  # index of a record, counting internal ones, 0-based
Position = NewType("Position", int)  # index of a byte within a segment file, 0-based
Epoch = NewType("Epoch", int)  # leader epoch: the number of a leadership; only ever grows
NodeId = NewType("NodeId", int)  # a broker's number in Kafka's protocol
Term = NewType("Term", int)  # Raft's term: the number of an election; only ever grows
RaftIndex = NewType("RaftIndex", int)  # index of an entry of the metadata log; the first is 1
ProducerId = NewType("ProducerId", int)  # id of an idempotent producer; never reused
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

"""The positions of a reader: the next offset to read of each partition; also as JSON.

    {"orders": {"0": 23, "1": -2}}      as Spark's Kafka source writes it

Topics and partitions are sorted, so that equal positions are equal texts: Spark compares those.

Offsets belong to one topic, and not to another one that was created under the same name later.  So
`Reached` has the ids of the topics with the offsets, and checkpoints contain both:

    {"orders": {"0": 23, "1": 42}, "#topic_ids": {"orders": "7f0c…"}}

Ids are missing if the broker sends none (Kafka before 2.8), and in checkpoints of older versions of
Quipu; they are added as soon as they are known.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from quipu.client.ranges import Range
from quipu.model.ids import ZERO_UUID, TopicPartition
from quipu.model.topics import PARTITION_COUNT_MAX

OFFSET_MAX: Final = 2**63 - 1
JSON_SIZE_MAX: Final = 64 << 20

Positions = dict[TopicPartition, int]
Json = dict[str, dict[str, int]]
TopicIds = dict[str, UUID]
IDS: Final = "#topic_ids"  # no topic can have this name


class Reached(NamedTuple):
    """The positions of a reader, and the ids of their topics."""

    positions: Positions
    topic_ids: TopicIds

    def to_json(self) -> dict[str, object]:
        found: dict[str, object] = {**to_json(self.positions)}
        if self.topic_ids:
            found[IDS] = {name: str(each) for name, each in sorted(self.topic_ids.items())}
        return found

    @classmethod
    def from_json(cls, given: object) -> "Reached":
        """The inverse of `to_json`; also reads positions without ids."""
        if not isinstance(given, dict):
            raise BadPositions(_SHAPE)
        rest = dict(given)
        ids = rest.pop(IDS, {})
        return cls(from_json(rest), _ids(ids))


NOWHERE: Final = Reached({}, {})


def known_ids(ids: Mapping[str, UUID]) -> TopicIds:
    """The ids without zeros, which a broker sends for a topic without an id."""
    return {name: each for name, each in ids.items() if each != ZERO_UUID}


def recreated_topics(before: Reached, topic_ids: Mapping[str, UUID]) -> set[str]:
    """The topics whose id has changed, of those whose old and new ids are known."""
    return {name for name, each in before.topic_ids.items()
            if topic_ids.get(name, each) != each}


class BadPositions(ValueError):
    """A text or value is no positions; the message says why."""


def to_json(positions: Mapping[TopicPartition, int]) -> Json:
    found: Json = {}
    for (topic, partition), offset in sorted(positions.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def to_text(positions: Mapping[TopicPartition, int]) -> str:
    return json.dumps(to_json(positions), separators=(",", ":"))


def from_json(given: object, *, low: int = 0) -> Positions:
    """Positions from parsed JSON, every number of it checked; none is below `low`."""
    if not isinstance(given, dict):
        raise BadPositions(_SHAPE)
    found: Positions = {}
    for topic, offsets in given.items():
        if not topic or not isinstance(topic, str) or not isinstance(offsets, dict):
            raise BadPositions(_SHAPE)
        for partition, offset in offsets.items():
            if type(offset) is not int or not low <= offset <= OFFSET_MAX:
                raise BadPositions(f"{topic}-{partition}: {str(offset)[:40]} must be a number from "
                                   f"{low} to {OFFSET_MAX}")
            found[TopicPartition(topic, partition_number(topic, partition))] = offset
    return dict(sorted(found.items()))


def from_text(text: str, *, low: int = 0) -> Positions:
    """Positions from JSON text."""
    return from_json(parsed(text), low=low)


def parsed(text: str) -> object:
    """JSON text of bounded size; numbers that no position can have are refused."""
    if len(text) > JSON_SIZE_MAX:
        raise BadPositions(f"{len(text)} characters of JSON; at most {JSON_SIZE_MAX} are read")
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadPositions(f"no JSON: {error}") from None
    return found


def partition_number(topic: str, given: object) -> int:
    """A partition's number, as the key of a JSON object or as a number."""
    written = given if isinstance(given, str) else str(given) if type(given) is int else ""
    if not (written.isascii() and written.isdigit() and len(written) <= 5
            and int(written) <= PARTITION_COUNT_MAX):
        raise BadPositions(f"{topic}: {str(given)[:40]!r} is no number of a partition")
    return int(written)


def ranges_between(start: Reached, end: Reached) -> list[Range]:
    """The ranges between two positions.

    A partition has none if it is in only one of them, or if its offset decreases, or if its topic
    was recreated.
    """
    first, ids = start.positions, {**end.topic_ids, **start.topic_ids}
    recreated = recreated_topics(start, end.topic_ids)
    return [Range(*partition, first[partition], last, ids.get(partition.topic, ZERO_UUID))
            for partition, last in sorted(end.positions.items())
            if partition in first and first[partition] < last and partition.topic not in recreated]


def lag(position: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> int:
    """The number of offsets still to be read; a partition without a position counts from zero."""
    return sum(max(end - position.get(partition, 0), 0) for partition, end in latest.items())


def total(ranges: Iterable[Range]) -> int:
    """The number of offsets in all ranges."""
    return sum(each.size for each in ranges)


def _ids(given: object) -> TopicIds:
    if not isinstance(given, dict):
        raise BadPositions(f"{IDS} must be ids by topic")
    try:
        return {str(name): UUID(each) for name, each in given.items()}
    except (ValueError, TypeError, AttributeError):
        raise BadPositions(f"{IDS} must be ids by topic") from None


_SHAPE: Final = 'must be JSON such as {"orders": {"0": 23, "1": 42}}'

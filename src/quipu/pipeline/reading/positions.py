"""How far a reader is: an offset per partition, the next one to read; as JSON too.

    {"orders": {"0": 23, "1": -2}}      as Spark's Kafka source writes it

Topics and partitions are sorted, so that equal positions are equal texts: Spark compares those.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Final

from quipu.client.ranges import Range
from quipu.model.ids import TopicPartition
from quipu.model.topics import PARTITION_COUNT_MAX

OFFSET_MAX: Final = 2**63 - 1
JSON_SIZE_MAX: Final = 64 << 20

Positions = dict[TopicPartition, int]
Json = dict[str, dict[str, int]]


class BadPositions(ValueError):
    """No positions; the message says what is wrong."""


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


def ranges_between(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> list[Range]:
    """What lies between two positions; nothing where a partition is only in one, or goes back."""
    return [Range(*partition, start[partition], last)
            for partition, last in sorted(end.items())
            if partition in start and start[partition] < last]


def lag(position: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> int:
    """Offsets still to be read; a partition that the reader does not know counts from zero."""
    return sum(max(end - position.get(partition, 0), 0) for partition, end in latest.items())


def total(ranges: Iterable[Range]) -> int:
    """Offsets in all ranges together."""
    return sum(each.size for each in ranges)


_SHAPE: Final = 'must be JSON such as {"orders": {"0": 23, "1": 42}}'

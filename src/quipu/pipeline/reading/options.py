"""The options of a reader, named as in Spark's Kafka source; every error in them is found here.

    subscribe | subscribePattern | assign      exactly one: which topics, or which partitions
    kafka.NAME                                 settings of the client; kafka.bootstrap.servers is
                                               needed
    startingOffsets                            earliest, latest, or JSON {"topic": {"0": 23}} where
                                               -2 is the earliest and -1 the latest; partitions
                                               that the JSON leaves out begin at the earliest
    startingTimestamp, startingOffsetsByTimestamp      milliseconds, for all or by JSON; they
                                               override startingOffsets
    startingOffsetsByTimestampStrategy         if no record is that new: error, or latest
    endingOffsets, endingTimestamp, endingOffsetsByTimestamp       of batch reads
    maxOffsetsPerTrigger, minOffsetsPerTrigger, maxTriggerDelay    of streams
    minPartitions, maxRecordsPerPartition, tasksPerBatch           how many tasks read a batch
    failOnDataLoss, includeHeaders
    onTopicRecreated                           if a topic was deleted and created again: fail, or
                                               earliest to read the new one from its first record;
                                               the default is fail, unless failOnDataLoss is false
    directRead                                 old records from object storage, past the brokers:
                                               auto, never or always
    columns                                    the columns to read; others are not read at all

Names are not case-sensitive.  Spark itself ignores an option that it does not know; here it is an
error, with the nearest name.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from quipu.client.settings import ClientSettings, client_settings
from quipu.model.errors import QuipuError, SettingError
from quipu.model.ids import TopicPartition
from quipu.model.nearest import nearest
from quipu.model.topics import InvalidTopicName, check_topic_name
from quipu.pipeline.reading.positions import (
    BadPositions,
    Positions,
    from_text,
    parsed,
    partition_number,
)
from quipu.pipeline.source import DirectRead, OnRecreated

PREFIX: Final = "kafka."
COLUMNS: Final = (
    "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
)
_LONG_MAX: Final = 2**63 - 1
_INT_MAX: Final = 2**31 - 1
_DURATION: Final = re.compile(r"(?P<count>\d{1,12})\s*(?P<unit>[a-z]*)")
_UNITS_MS: Final = {
    "": 1, "ms": 1, "s": 1_000, "sec": 1_000, "second": 1_000, "seconds": 1_000,
    "m": 60_000, "min": 60_000, "minute": 60_000, "minutes": 60_000,
    "h": 3_600_000, "hour": 3_600_000, "hours": 3_600_000,
}
_IGNORED: Final = (  # options of Spark's source about Java consumers, which are not used here
    "groupIdPrefix", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs", "partition.metadata.cache.ttl.ms",
)
_T = TypeVar("_T")


class BadOption(QuipuError):
    """A wrong option; the message names it and says which values it may have."""


class Edge(Enum):
    """The start or the end of a partition."""

    EARLIEST = -2
    LATEST = -1


@dataclass(frozen=True)
class TopicSelection:
    """The topics to read, by exactly one of three options."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True)
class Bound:
    """Where reading begins or ends: an edge, except for partitions with an offset or a time."""

    edge: Edge
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)  # -2 and -1: edges
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)  # the offsets' topics, if known
    time_ms: int | None = None  # for all partitions
    times_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    or_latest: bool = False  # if no record is as new as the time; else it is an error


class Limits(NamedTuple):
    """Limits on the offsets of one batch of a stream."""

    offsets_max: int | None = None
    offsets_min: int | None = None
    delay_max_ms: int = 15 * 60_000  # after which offsets_min is not waited for


NO_LIMITS: Final = Limits()
RECREATED_HINT: Final = ("set onTopicRecreated=earliest to read the new topic from its first "
                         "record, or begin a query with a checkpoint of its own")


@dataclass(frozen=True)
class ReadOptions:
    """The checked options of a reader."""

    client: ClientSettings
    selection: TopicSelection
    start: Bound
    end: Bound
    limits: Limits = NO_LIMITS
    tasks: int | None = None  # of one batch; None: as many as there are cores
    tasks_min: int | None = None
    task_offsets_max: int | None = None
    fail_on_loss: bool = True
    on_recreated: OnRecreated = OnRecreated.FAIL
    recreated_hint: str = RECREATED_HINT
    direct_read: DirectRead = DirectRead.AUTO
    columns: tuple[str, ...] = COLUMNS[:-1]  # in the order of COLUMNS


EARLIEST: Final = Bound(Edge.EARLIEST)
LATEST: Final = Bound(Edge.LATEST)


def batch_options(given: Mapping[str, str]) -> ReadOptions:
    """Options of a read that ends."""
    reader = _OptionReader(given)
    for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
        reader.refuse(name, "it is for streams")
    start = reader.bound("starting", EARLIEST)
    if start.edge is Edge.LATEST or Edge.LATEST.value in start.offsets.values():
        raise BadOption("startingOffsets of a batch read cannot be the latest: it has no records")
    end = reader.bound("ending", LATEST)
    if end.edge is Edge.EARLIEST or Edge.EARLIEST.value in end.offsets.values():
        raise BadOption("endingOffsets cannot be the earliest: there are no records before it")
    return reader.options(start, end)


def stream_options(given: Mapping[str, str]) -> ReadOptions:
    """Options of a stream."""
    reader = _OptionReader(given)
    for name in _ENDING:
        reader.refuse(name, "a stream has no end; use trigger(availableNow=True)")
    return reader.options(reader.bound("starting", LATEST), LATEST)


def columns_option(given: Mapping[str, str]) -> tuple[str, ...]:
    """The columns that options ask for, in the order of COLUMNS."""
    return _OptionReader(given).columns()


_BOUNDS: Final = ("Offsets", "Timestamp", "OffsetsByTimestamp")
_STARTING: Final = tuple(f"starting{name}" for name in _BOUNDS)
_ENDING: Final = tuple(f"ending{name}" for name in _BOUNDS)
NAMES: Final = (
    "subscribe", "subscribePattern", "assign", *_STARTING, "startingOffsetsByTimestampStrategy",
    *_ENDING, "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions",
    "maxRecordsPerPartition", "tasksPerBatch", "failOnDataLoss", "onTopicRecreated",
    "includeHeaders", "directRead", "columns",
    *_IGNORED,
)
_BY_FOLDED: Final = {name.lower(): name for name in NAMES}


class _OptionReader:
    """Options by their proper names, and one method for each kind of value."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given: dict[str, str] = {}
        self._client: dict[str, str] = {}
        for name, value in given.items():
            folded = name.lower()
            if folded.startswith(PREFIX):
                self._client[folded.removeprefix(PREFIX)] = value
            elif folded in _BY_FOLDED:
                self._given[_BY_FOLDED[folded]] = value
            else:
                raise BadOption(_unknown(name))

    def options(self, start: Bound, end: Bound) -> ReadOptions:
        limits = Limits(
            self._number("maxOffsetsPerTrigger"), self._number("minOffsetsPerTrigger"),
            self._duration_ms("maxTriggerDelay", NO_LIMITS.delay_max_ms))
        if limits.offsets_min and limits.offsets_max and limits.offsets_min > limits.offsets_max:
            raise BadOption(f"minOffsetsPerTrigger={limits.offsets_min} is more than "
                            f"maxOffsetsPerTrigger={limits.offsets_max}")
        return ReadOptions(
            self._settings(), self._selection(), start, end, limits,
            tasks=self._number("tasksPerBatch", high=_INT_MAX),
            tasks_min=self._number("minPartitions", high=_INT_MAX),
            task_offsets_max=self._number("maxRecordsPerPartition"),
            fail_on_loss=self._flag("failOnDataLoss", default=True),
            on_recreated=self._on_recreated(),
            direct_read=self._direct_read(),
            columns=self.columns())

    def bound(self, side: str, default: Bound) -> Bound:
        """The bound of one side; times override offsets, as in Spark."""
        time_ms = self._number(f"{side}Timestamp", low=0)
        or_latest = side == "ending" or self._choice(
            "startingOffsetsByTimestampStrategy", ("error", "latest")) == "latest"
        if time_ms is not None:
            return Bound(default.edge, time_ms=time_ms, or_latest=or_latest)
        rest = Edge.EARLIEST if side == "starting" else Edge.LATEST
        if times := self._positions(f"{side}OffsetsByTimestamp", low=0):
            return Bound(rest, times_ms=times, or_latest=or_latest)
        name = f"{side}Offsets"
        word = self._given.get(name, "").strip().lower()
        if word in ("earliest", "latest"):
            return Bound(Edge[word.upper()])
        if offsets := self._positions(name, low=-2):
            return Bound(rest, offsets)
        return default

    def refuse(self, name: str, why: str) -> None:
        if name in self._given:
            raise BadOption(f"{name} cannot be given here: {why}")

    def _settings(self) -> ClientSettings:
        if "bootstrap.servers" not in self._client:
            raise BadOption("kafka.bootstrap.servers is missing: brokers as HOST:PORT,HOST:PORT")
        try:
            return client_settings(self._client)
        except SettingError as error:
            raise BadOption(f"{PREFIX}{error}") from None

    def _selection(self) -> TopicSelection:
        ways = ("subscribe", "subscribePattern", "assign")
        used = [name for name in ways if name in self._given]
        if len(used) != 1:
            found = " and ".join(used) or "none"
            raise BadOption(f"give exactly one of {', '.join(ways)}; found {found}")
        text = self._given[used[0]]
        if used[0] == "assign":
            return TopicSelection(assigned=self._wrap("assign", _assigned, text))
        if used[0] == "subscribe":
            return TopicSelection(self._wrap("subscribe", _topics, text))
        return TopicSelection(pattern=self._wrap("subscribePattern", _pattern, text))

    def columns(self) -> tuple[str, ...]:
        headers = self._flag("includeHeaders", default=False)
        if "columns" not in self._given:
            return COLUMNS if headers else COLUMNS[:-1]
        folded = {name.lower(): name for name in COLUMNS}
        wanted = set()
        for item in self._given["columns"].split(","):
            name = folded.get(item.strip().lower())
            if name is None:
                raise BadOption(f"columns: there is no {item.strip()[:80]!r}; there are "
                                f"{', '.join(COLUMNS)}")
            wanted.add(name)
        return tuple(name for name in COLUMNS if name in wanted)

    def _on_recreated(self) -> OnRecreated:
        word = self._choice("onTopicRecreated", tuple(each.value for each in OnRecreated))
        if word is not None:
            return OnRecreated(word)
        is_strict = self._flag("failOnDataLoss", default=True)
        return OnRecreated.FAIL if is_strict else OnRecreated.EARLIEST

    def _direct_read(self) -> DirectRead:
        word = self._choice("directRead", tuple(each.value for each in DirectRead))
        return DirectRead.AUTO if word is None else DirectRead(word)

    def _number(self, name: str, *, low: int = 1, high: int = _LONG_MAX) -> int | None:
        text = self._given.get(name)
        if text is None:
            return None
        digits = text.strip()
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20
                and low <= int(digits) <= high):
            raise BadOption(f"{name}={text[:80]}: must be a number from {low} to {high}")
        return int(digits)

    def _duration_ms(self, name: str, default: int) -> int:
        text = self._given.get(name)
        if text is None:
            return default
        found = _DURATION.fullmatch(text.strip().lower())
        if found is None or found["unit"] not in _UNITS_MS:
            raise BadOption(f"{name}={text[:80]}: must be a time such as 15m, 30s or 500ms")
        return int(found["count"]) * _UNITS_MS[found["unit"]]

    def _flag(self, name: str, *, default: bool) -> bool:
        word = self._choice(name, ("true", "false"))
        return default if word is None else word == "true"

    def _choice(self, name: str, among: tuple[str, ...]) -> str | None:
        text = self._given.get(name)
        if text is None:
            return None
        word = text.strip().lower()
        if word not in among:
            raise BadOption(f"{name}={text[:80]}: must be {' or '.join(among)}")
        return word

    def _positions(self, name: str, *, low: int) -> Positions:
        text = self._given.get(name)
        if text is None:
            return {}
        return self._wrap(name, lambda given: from_text(given, low=low), text)

    @staticmethod
    def _wrap(name: str, parse: Callable[[str], _T], text: str) -> _T:
        try:
            return parse(text)
        except (BadPositions, InvalidTopicName) as error:
            raise BadOption(f"{name}: {error}") from None


def _topics(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(item.strip() for item in text.split(",") if item.strip()))
    if not names:
        raise BadPositions("no topic is named")
    for name in names:
        check_topic_name(name)
    return names


def _pattern(text: str) -> str:
    if not text:
        raise BadPositions("the pattern is empty")
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise BadPositions(f"no regular expression: {error}") from None
    return text


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    given = parsed(text)
    if not isinstance(given, dict) or not given:
        raise BadPositions('must be JSON such as {"orders": [0, 1]}')
    found = set()
    for topic, numbers in given.items():
        check_topic_name(topic)
        if not isinstance(numbers, list) or not numbers:
            raise BadPositions('must be JSON such as {"orders": [0, 1]}')
        found |= {TopicPartition(topic, partition_number(topic, number)) for number in numbers}
    return tuple(sorted(found))


def _unknown(name: str) -> str:
    near = nearest(name, NAMES)
    hint = f"; did you mean {near}?" if near else ""
    return f"unknown option {name[:100]}{hint}"

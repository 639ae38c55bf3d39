"""Reads the parts of ranges that are in object storage from there, past the brokers.

    left = yield from DirectReading(cluster, mode, on_loss).read(ranges)
                                               # what is left is read through brokers

The leader of a partition says which segments hold its old records (`client.remote_log`), at the
time of reading: by then, what was planned earlier may have expired, or moved to the tier.  Of a
diskless topic, what is not in the tier is in objects too (`client.diskless_log`): only the few
records at its end are better read from brokers, which hold them in memory.

Invariants
    pipeline.J1  of a range, records are read once and in order: from objects up to some offset, and
                 from there on through brokers, whatever fails in between
    pipeline.J2  an object that is gone is looked up again; records that have left the log are the
                 same loss as without direct reads
    pipeline.J3  with `auto`, what prevents direct reads is logged once for a store, and brokers are
                 read from; with `always` it is an error

Not here: fetching objects (objects.py), and the decision what is read at all (stream.py).
"""

import logging
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from typing import Final, NamedTuple

from quipu.client.cluster import Cluster
from quipu.client.diskless_log import DisklessLogPart, describe_diskless_log
from quipu.client.errors import BrokerRefused, ConnectionFailed, NotServed, UnknownTopic
from quipu.client.fetch import FetchedBatches, OnLoss, fetch, may_be_same_topic
from quipu.client.ranges import Range
from quipu.client.remote_log import RemoteLogPart, SegmentPlace, describe_remote_log
from quipu.client.settings import ClientSettings
from quipu.diskless.values import BatchRun, LogKey
from quipu.model.errors import ErrorKind, MalformedBytes, QuipuError, SettingError
from quipu.model.ids import NO_TIMESTAMP, Offset, TopicPartition
from quipu.pipeline.reading.objects import (
    DISKLESS_URL_VARIABLE,
    ReadBatches,
    SegmentSpan,
    TransactionsInside,
    object_reading,
    store_url,
)
from quipu.pipeline.source import DirectRead
from quipu.remote.segments.errors import SegmentMissing
from quipu.remote.segments.names import SegmentName
from quipu.remote.segments.pointer import decode_pointer
from quipu.runtime.clock import SystemClock
from quipu.runtime.objects.errors import ObjectNotFound, ObjectStoreError

AUTO_SECONDS: Final = 2.0  # for leaders to say what is where, before brokers are read from instead
PAUSE_SECONDS: Final = 60.0  # for which a store that failed is not tried again
KNOWN_SECONDS: Final = 30.0  # for which a local start is trusted not to have moved much
KNOWN_MAX: Final = 10_000
RANGES_MAX: Final = 200  # whose segments are known at a time: bounds memory
RUNS_SIZE_MIN: Final = 1 << 20  # bytes of a diskless log; fewer are read through brokers

_log = logging.getLogger(__name__)


class DirectReadFailed(QuipuError):
    """Records could not be read from object storage, and directRead=always was asked for."""

    kind = ErrorKind.INVALID


class ObjectBatches(NamedTuple):
    """Some batches of a range, from objects; their checksums were compared (remote.segments.R1)."""

    range: Range
    first: int  # the offset that is read next; the first batch may begin before it
    runs: list[memoryview]  # whole batches


class _Memory:
    """What this process has learned; it only saves requests (pipeline.J1 does not need it)."""

    def __init__(self) -> None:
        self.now = SystemClock().monotonic
        self.paused: dict[str, float] = {}  # store URL: until when it is not tried
        self.warned: dict[str, float] = {}
        self.local_starts: dict[tuple[ClientSettings, TopicPartition], tuple[int, float]] = {}

    def is_local(self, settings: ClientSettings, each: Range) -> bool:
        """Did the brokers have this range themselves, a moment ago?"""
        start, known = self.local_starts.get((settings, each.topic_partition), (0, -1e9))
        return each.first >= start and self.now() - known < KNOWN_SECONDS

    def note(self, settings: ClientSettings, each: Range, part: RemoteLogPart) -> None:
        if len(self.local_starts) >= KNOWN_MAX:
            self.local_starts.clear()
        if not part.is_diskless:  # brokers have none of its records themselves
            self.local_starts[settings, each.topic_partition] = part.local_start, self.now()

    def warn(self, about: str, error: QuipuError) -> None:
        """Log why brokers are read from, once in a while for each store."""
        now = self.now()
        if now >= self.warned.get(about, 0.0):
            self.warned[about] = now + PAUSE_SECONDS
            _log.warning("%s is not read directly, but through brokers: %s", about, error)


_memory = _Memory()


def spans_of(wanted: Range, part: RemoteLogPart) -> list[SegmentSpan]:
    """What to read of each segment for a range; raises `MalformedBytes` for a wrong pointer."""
    reached, spans = wanted.first, []
    for place in part.segments:
        end = min(place.end, wanted.end)
        assert place.first <= reached < place.end, (wanted, place)  # client.L1
        spans.append(_span(wanted, part, place, (reached, end)))
        reached = end
    return spans


def _span(
    wanted: Range, part: RemoteLogPart, place: SegmentPlace, offsets: tuple[int, int]
) -> SegmentSpan:
    name = SegmentName(part.topic_id, wanted.partition, place.first, place.segment_id)
    return SegmentSpan(name, decode_pointer(place.custom_metadata), *offsets)


def runs_of(wanted: Range, part: DisklessLogPart) -> list[BatchRun]:
    """The runs to read for a range; none if its first records are not there any more."""
    if not may_be_same_topic(wanted.topic_id, part.topic_id) or (
            part.diskless_start > wanted.first):
        return []
    log = LogKey(part.topic_id, wanted.partition)
    return [BatchRun(log, Offset(run.first), Offset(run.end), run.key, run.position, run.size,
                     run.batch_count, NO_TIMESTAMP) for run in part.runs]


class DirectReading:
    """The direct reads of one task; `read` is called once."""

    def __init__(self, cluster: Cluster, mode: DirectRead, on_loss: OnLoss) -> None:
        self._cluster = cluster
        self._settings = cluster.settings
        self._mode = mode
        self._on_loss = on_loss

    def read(
        self, ranges: Iterable[Range]
    ) -> Generator[FetchedBatches | ObjectBatches, None, list[Range]]:
        """Read what can be read from objects; returns the ranges that are left for brokers."""
        wanted = [each for each in ranges if each.size]
        if self._mode is DirectRead.NEVER:
            return wanted
        left = []
        for at in range(0, len(wanted), RANGES_MAX):
            some = wanted[at : at + RANGES_MAX]
            parts = self._describe([
                each for each in some if self._mode is DirectRead.ALWAYS
                or not _memory.is_local(self._settings, each)])
            for each in some:
                part = parts.get(each.topic_partition)
                rest = each if part is None else (yield from self._read_range(each, part))
                if rest.size:
                    left.append(rest)
        return left

    def _describe(self, ranges: list[Range]) -> dict[TopicPartition, RemoteLogPart]:
        seconds = None if self._mode is DirectRead.ALWAYS else AUTO_SECONDS
        try:
            found = describe_remote_log(self._cluster, ranges, seconds=seconds) if ranges else {}
        except UnknownTopic:
            return {}  # a fetch says what has become of it
        except NotServed as error:  # brokers of Kafka: nothing to say about that
            self._refuse(error, "the broker is none of Quipu's, or an older one")
            return {}
        except (BrokerRefused, ConnectionFailed, MalformedBytes) as error:
            self._refuse(error, str(error))
            _memory.warn(self._settings.bootstrap_servers, error)
            return {}
        for each in ranges:
            _memory.note(self._settings, each, found[each.topic_partition])
        return found

    def _read_range(
        self, wanted: Range, part: RemoteLogPart
    ) -> Generator[FetchedBatches | ObjectBatches, None, Range]:
        """Read a range as far as objects have it; returns the rest of it."""
        missing_at = -1
        while wanted.size:
            if not may_be_same_topic(wanted.topic_id, part.topic_id):
                return wanted  # a fetch says what has become of its topic
            reached = wanted.first
            if part.log_start > wanted.first:
                end = min(part.log_start, wanted.end)
                yield from fetch(  # pipeline.J2
                    self._cluster, [wanted._replace(end=end)], on_loss=self._on_loss)
                wanted = wanted._replace(first=end)
            else:
                try:
                    for first, next_offset, runs in self._objects(wanted, part):
                        wanted = wanted._replace(first=min(next_offset, wanted.end))
                        yield ObjectBatches(wanted, first, runs)
                except SegmentMissing as error:
                    if missing_at == wanted.first:  # the leader says again that it is there
                        self._give_up(part, error)
                        return wanted
                    missing_at = wanted.first
                except QuipuError as error:
                    self._give_up(part, error)
                    return wanted
                else:
                    is_more = part.is_diskless or part.next_offset == wanted.first
                    if not is_more or wanted.first == reached:
                        return wanted
            again = self._describe([wanted]) if wanted.size else {}
            if not again:
                return wanted
            part = again[wanted.topic_partition]
        return wanted

    def _objects(self, wanted: Range, part: RemoteLogPart) -> Iterator[ReadBatches]:
        reached = wanted.first
        if part.segments:
            url = store_url(part.store_url)
            spans = spans_of(wanted, part)
            for batches in self._reading(url, lambda: object_reading().read(
                    url, spans, committed=self._settings.read_committed)):
                yield batches
                reached = batches.next_offset
        if part.is_diskless and part.local_start <= reached < wanted.end:
            yield from self._runs(wanted._replace(first=reached))

    def _runs(self, wanted: Range) -> Iterator[ReadBatches]:
        """What objects of a diskless topic have of a range."""
        seconds = None if self._mode is DirectRead.ALWAYS else AUTO_SECONDS
        while wanted.size:
            found = describe_diskless_log(self._cluster, wanted, seconds=seconds)
            runs = runs_of(wanted, found)
            is_small = sum(run.size for run in runs) < RUNS_SIZE_MIN
            if not runs or (is_small and self._mode is DirectRead.AUTO):
                return
            url = store_url(found.store_url, DISKLESS_URL_VARIABLE)
            first, end = wanted.first, wanted.end
            try:
                for batches in self._reading(
                        url, partial(object_reading().read_runs, url, runs, first, end)):
                    yield batches
                    wanted = wanted._replace(first=min(batches.next_offset, end))
            except ObjectNotFound as error:  # its runs have moved: they are looked up again
                raise SegmentMissing(str(error)) from error
            if wanted.first == first:
                return

    def _reading(
        self, url: str, read: Callable[[], Iterator[ReadBatches]]
    ) -> Iterator[ReadBatches]:
        """Read from a store, unless it failed a moment ago."""
        if self._mode is DirectRead.AUTO and _memory.now() < _memory.paused.get(url, 0.0):
            return
        try:
            yield from read()
        except ObjectNotFound:
            raise
        except (ObjectStoreError, SettingError):
            _memory.paused[url] = _memory.now() + PAUSE_SECONDS
            raise

    def _give_up(self, part: RemoteLogPart, error: QuipuError) -> None:
        """Raise with `always`; else log why the rest is read through brokers (pipeline.J3)."""
        if isinstance(error, TransactionsInside):
            return
        self._refuse(error, str(error))
        _memory.warn((part.store_url or "a store").partition("?")[0], error)

    def _refuse(self, error: QuipuError, why: str) -> None:
        if self._mode is DirectRead.ALWAYS:
            raise DirectReadFailed(
                f"directRead=always, but records cannot be read from object storage: {why}; "
                "directRead=auto reads them through brokers") from error

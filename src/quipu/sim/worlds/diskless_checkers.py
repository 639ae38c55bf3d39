"""Checks of the control plane and the objects of a world of diskless topics.

Each operation of the control plane is compared with a model of every log as it is carried out, and
each deletion of an object just before it happens.

Checkers
    stored-first         the object of a commit is in the store, and each batch is where it says
    offsets-dense        an accepted batch gets the offset after the last one (diskless.C1)
    exactly-once         no value has two offsets; a duplicate gets the offset of the first time
    one-outcome          a commit that is repeated has the outcomes of the first time (diskless.C2)
    bounds-grow          log start, diskless start and high watermark never fall (diskless.C4)
    kept                 only records that may be deleted are below the log start
    runs-cover           every offset up to the high watermark is in exactly one run, whose object
                         holds the batches that were committed there (diskless.C5)
    referenced-deleted   an object was deleted that has runs
    grace                an object was deleted before nothing had referred to it for the grace
                         period; only where no wall clock is set
    acked-committed      an acknowledged record is committed, and its object is in the store
    one-order            what clients got at an offset is what was committed there
    left-over            in the end the store holds nothing that nothing refers to
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from quipu.diskless.control_plane.interface import BatchOutcome, FindRequest, Replacement
from quipu.diskless.values import BatchCoordinates, BatchRun, LogBounds, LogKey, NewObject
from quipu.model.errors import Code
from quipu.model.ids import Offset
from quipu.sim.twins.control_plane import SimDatabase
from quipu.sim.twins.objects import SimBucket
from quipu.sim.workloads.traffic import RECORD_SIZE_MAX
from quipu.sim.world import Violation
from quipu.wire.record_batch import (
    HEADER_SIZE,
    BatchHeader,
    body_crc,
    decode_records,
    parse_header,
)

ALL_BYTES: Final = 1 << 40
DRIFT_SECONDS: Final = 0.1  # between the clocks of two brokers


class CommittedBatch(NamedTuple):
    """One batch of a log, as it was committed."""

    base_offset: int
    record_count: int
    crc: int


@dataclass(slots=True, eq=False)
class LogModel:
    """What a log must hold."""

    batches: list[CommittedBatch] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)  # by offset
    bounds: tuple[int, int, int] = (0, 0, 0)
    is_deleted: bool = False

    @property
    def end(self) -> int:
        return len(self.values)


class PlaneChecker:
    """Compares the control plane and the store with what was committed."""

    def __init__(
        self, database: SimDatabase, bucket: SimBucket, now: Callable[[], float], *,
        grace_seconds: float,
    ) -> None:
        self.logs: dict[LogKey, LogModel] = defaultdict(LogModel)
        self.commits: dict[str, Sequence[BatchOutcome]] = {}
        self.refused_count = 0  # batches that a commit did not take
        self.moved_count = 0  # runs that were rewritten
        self.deleted_count = 0  # objects
        # The offset below which records of a log may be deleted now.
        self.may_delete: Callable[[LogKey, int], bool] = lambda _log, _start: False
        self._database = database
        self._plane = database.plane
        self._bucket = bucket
        self._now = now
        self._grace_seconds = grace_seconds  # 0: not checked
        self._places: dict[bytes, tuple[LogKey, int]] = {}
        self._unused_since: dict[str, float] = {}  # object -> when its last run went
        self._used: set[str] = set()
        database.on_change = self._changed
        bucket.on_delete = self._deleted

    # -- operations of the control plane

    def _changed(
        self, what: str, args: tuple[Any, ...], result: Any, sent_at: float,  # noqa: ANN401
    ) -> None:
        operation = what.partition(" ")[0]
        if operation == "commit":
            self._committed(args[0], result)
        elif operation == "rewrite" and result:
            self._rewritten(args[0], args[1])
        elif operation == "delete_records" and result is not None:
            self._bounded(args[0], result)
        elif operation == "retain":
            for rule, bounds in zip(args[0], result, strict=True):
                if bounds is not None:
                    self._bounded(rule.log, bounds)
        elif operation == "forget_objects":
            for key in args[0]:
                self.commits.pop(key, None)  # a commit that comes again is refused
        elif operation == "delete_topic":
            for log, model in self.logs.items():
                model.is_deleted |= log.topic_id == args[0]
        self._note_unused(sent_at)

    def _committed(self, new: NewObject, outcomes: Sequence[BatchOutcome]) -> None:
        known = self.commits.setdefault(new.key, tuple(outcomes))
        if known is not outcomes and [each[:2] for each in known] != [
                each[:2] for each in outcomes]:
            raise Violation(f"one-outcome: {new.key} has {outcomes}; the first time {known}")
        accepted = [(batch, outcome) for batch, outcome in zip(new.batches, outcomes, strict=True)
                    if outcome.code is Code.NONE]
        self.refused_count += len(outcomes) - len(accepted)
        if not accepted:
            return  # the object may be gone: it was condemned, and its key refused
        data = self._object(new.key, "stored-first")
        if any(not outcome.is_duplicate for _, outcome in accepted):
            self._used.add(new.key)
        for batch, outcome in accepted:
            header, values = _read(data, batch)
            model = self.logs[batch.log]
            base = int(outcome.base_offset)
            if outcome.is_duplicate or base < model.end:
                self._duplicate(batch, base, values)
                continue
            if base != model.end:
                raise Violation(f"offsets-dense: {batch.log} got {base} after {model.end}")
            model.batches.append(CommittedBatch(base, batch.record_count, header.crc))
            for place, value in enumerate(values):
                self._place(value, batch.log, base + place)
            model.values += values
        for log in {batch.log: None for batch, _ in accepted}:
            self._check_tail(log)

    def _place(self, value: bytes, log: LogKey, offset: int) -> None:
        found = self._places.setdefault(value, (log, offset))
        if found != (log, offset):
            raise Violation(f"exactly-once: {value!r} at {found} and at {(log, offset)}")

    def _duplicate(self, batch: BatchCoordinates, base: int, values: list[bytes]) -> None:
        """A copy is not stored again; an old one may have no known place any more."""
        if base >= 0 and self.logs[batch.log].values[base : base + len(values)] != values:
            raise Violation(f"exactly-once: a copy of {values} is said to be at {base} of "
                            f"{batch.log}")

    def _bounded(self, log: LogKey, bounds: LogBounds) -> None:
        model = self.logs[log]
        now = (int(bounds.log_start_offset), int(bounds.diskless_start_offset),
               int(bounds.high_watermark))
        if any(new < old for new, old in zip(now, model.bounds, strict=True)) or not (
                now[0] <= now[1] <= now[2]) or now[2] != model.end:
            raise Violation(f"bounds-grow: {log} has {now} after {model.bounds}, its end is "
                            f"{model.end}")
        if now[0] > model.bounds[0] and not self.may_delete(log, now[0]):
            raise Violation(f"kept: {log} starts at {now[0]} after {model.bounds[0]}")
        model.bounds = now

    def _rewritten(self, new: NewObject, replacements: Sequence[Replacement]) -> None:
        self._object(new.key, "stored-first")
        self._used.add(new.key)
        self.moved_count += len(replacements)
        for log in {each.old.log: None for each in replacements}:
            self.check_log(log)

    def _note_unused(self, sent_at: float) -> None:
        """Remember since when each object has had no run, by the time that its caller gave."""
        for key in sorted(self._used):
            if not self._runs(key):
                self._used.discard(key)
                self._unused_since.setdefault(key, sent_at)

    # -- the store

    def _runs(self, key: str) -> Sequence[BatchRun]:
        return self._database.now(self._plane.object_runs(key))

    def _object(self, key: str, checker: str) -> bytes:
        if key not in self._bucket.objects:
            raise Violation(f"{checker}: {key} is not in the store")
        return self._bucket.objects.get(key)

    def _deleted(self, keys: Sequence[str]) -> None:
        """Check objects that are about to be deleted."""
        for key in keys:
            if key not in self._bucket.objects:
                continue
            if runs := self._runs(key):
                raise Violation(f"referenced-deleted: {key} has {len(runs)} runs: {runs[0]} ...")
            self.deleted_count += 1
            since = self._unused_since.get(key)
            if since is not None and self._now() < since + self._grace_seconds - DRIFT_SECONDS:
                raise Violation(f"grace: {key} was deleted {self._now() - since:.3f} s after its "
                                f"last run went; the grace period is {self._grace_seconds:g} s")

    # -- logs

    def bounds(self, log: LogKey) -> LogBounds | None:
        """What the control plane has for a log now."""
        return self._database.now(self._plane.bounds([log]))[0]

    def _check_tail(self, log: LogKey) -> None:
        bounds = self.bounds(log)
        if bounds is None or self.logs[log].is_deleted:
            return
        self._bounded(log, bounds)

    def check_log(self, log: LogKey) -> None:
        """Compare all runs of a log, and the bytes that they refer to, with what it must hold."""
        model, bounds = self.logs[log], self.bounds(log)
        if bounds is None or model.is_deleted:
            return
        self._bounded(log, bounds)
        offset = int(bounds.diskless_start_offset)
        expected = {each.base_offset: each for each in model.batches}
        while offset < bounds.high_watermark:
            found = self._database.now(self._plane.find(
                [FindRequest(log, Offset(offset), ALL_BYTES)]))[0]
            if not found.runs or not found.runs[0].base_offset <= offset:
                raise Violation(f"runs-cover: {log} has no run with {offset}: {found}")
            for run in found.runs:
                self._check_run(run, expected)
                offset = int(run.end_offset)

    def _check_run(self, run: BatchRun, expected: dict[int, CommittedBatch]) -> None:
        data = self._object(run.key, "runs-cover")
        offset, count = int(run.base_offset), 0
        for header in _headers(data, run.position, run.size):
            batch = expected.get(offset)
            if batch is None or (batch.record_count, batch.crc) != (
                    header.last_offset_delta + 1, header.crc):
                raise Violation(f"runs-cover: {run} has at {offset} {header}; committed was "
                                f"{batch}")
            offset += batch.record_count
            count += 1
        if (offset, count) != (run.end_offset, run.batch_count):
            raise Violation(f"runs-cover: {run} has {count} batches, up to {offset}")

    # -- clients

    def acked(self, log: LogKey, offset: int) -> None:
        """Check a record that a client has been told is stored."""
        model = self.logs[log]
        if offset >= model.end:
            raise Violation(f"acked-committed: {log} {offset} was acknowledged; committed are "
                            f"{model.end}")
        bounds = self.bounds(log)
        if bounds is None or offset < bounds.diskless_start_offset:
            return  # deleted since
        found = self._database.now(self._plane.find(
            [FindRequest(log, Offset(offset), 1)]))[0]
        if not found.runs:
            raise Violation(f"acked-committed: {log} {offset} is in no run")
        self._object(found.runs[0].key, "acked-committed")

    def got(self, log: LogKey, values: dict[int, bytes]) -> None:
        """Compare what clients got, by offset, with what was committed."""
        committed = self.logs[log].values
        for offset, value in sorted(values.items()):
            if offset >= len(committed) or committed[offset] != value:
                raise Violation(f"one-order: {log} {offset} is {value!r} for clients; committed "
                                f"{committed[offset : offset + 1]}")

    # -- in the end

    def check_objects(self) -> None:
        """Every run of an object is one that readers of its log are told of (diskless.C5)."""
        after = ""
        while states := self._database.now(self._plane.objects(after=after)):
            for state in states:
                for run in self._runs(state.key):
                    found = self._database.now(self._plane.find(
                        [FindRequest(run.log, run.base_offset, 1)]))[0]
                    if found.bounds is not None and found.runs[:1] != (run,) and (
                            run.base_offset >= found.bounds.diskless_start_offset
                            or run.end_offset <= found.bounds.diskless_start_offset):
                        raise Violation(f"runs-cover: {state.key} has {run}; its log has there "
                                        f"{found}")
            after = states[-1].key

    def left_over(self, is_kept: Callable[[str], bool]) -> str:
        """An object of the store that nothing refers to, for people; empty if there is none."""
        for key in self._bucket.objects.all_keys():
            if not is_kept(key) and not self._runs(key):
                return f"{key} is still in the store"
        for state in self._database.now(self._plane.objects()):
            if state.marked_ms is not None:
                return f"{state.key} is not forgotten"
        return ""


def _headers(data: bytes, position: int, size: int) -> Iterator[BatchHeader]:
    """The headers of the batches in a part of an object."""
    end = position + size
    while position < end:
        header = parse_header(memoryview(data), position)
        yield header
        position += header.size
    if position != end:
        raise Violation(f"runs-cover: batches end at {position}, their run at {end}")


def _read(data: bytes, batch: BatchCoordinates) -> tuple[BatchHeader, list[bytes]]:
    """The batch at its coordinates, and its records' keys."""
    found = memoryview(data)[batch.position : batch.position + batch.size]
    if len(found) < HEADER_SIZE:
        raise Violation(f"stored-first: {batch} is not in its object of {len(data)} bytes")
    header = parse_header(found)
    facts = (header.size, header.last_offset_delta + 1, header.producer_id,
             header.producer_epoch, header.base_sequence, body_crc(found))
    if facts != (batch.size, batch.record_count, batch.producer_id, batch.producer_epoch,
                 batch.base_sequence, header.crc):
        raise Violation(f"stored-first: {batch} is not what the object has there: {header}")
    values = [record.key for record in decode_records(found, size_max=RECORD_SIZE_MAX)]
    assert all(value is not None for value in values)
    return header, [value for value in values if value is not None]

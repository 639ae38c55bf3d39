"""A control plane in this process's memory, for the simulator and for tests; it ends with it.

Each operation is one step: it awaits nothing, so nothing comes in between, and it runs in virtual
time.  Several planes that share tables behave as several nodes of one cluster.

Time look-ups walk the runs of a log: diskless.C7 holds for all else.
"""

import asyncio
from collections.abc import Callable, Sequence
from uuid import UUID

from quipu.diskless.control_plane.adoption import (
    OWNER,
    AdoptionVerdict,
    LogBefore,
    histories_of,
    judge_adoption,
    lineage_of,
)
from quipu.diskless.control_plane.commit_plan import (
    age_ms,
    check_object,
    logs_of,
    plan_commit,
    plan_restore,
    producers_of,
    restored_outcomes,
)
from quipu.diskless.control_plane.interface import (
    FIND_RUNS_MAX,
    LIMIT_MAX,
    MOVED_START,
    AdoptedLog,
    BatchOutcome,
    FindRequest,
    FoundRuns,
    Listener,
    ObjectState,
    ProducerState,
    Replacement,
    RetentionRule,
    TieringClaim,
)
from quipu.diskless.control_plane.memory_tables import MemoryLog, MemoryObject, MemoryTables
from quipu.diskless.control_plane.retention import RunAge, end_of_expired
from quipu.diskless.errors import ControlPlaneClosed
from quipu.diskless.values import (
    BORN_DISKLESS,
    BatchRun,
    Lineage,
    LogBounds,
    LogKey,
    NewObject,
)
from quipu.model.errors import Code
from quipu.model.ids import Offset, TimestampMs


class MemoryControlPlane:
    """One node's view of `MemoryTables`."""

    def __init__(self, tables: MemoryTables | None = None) -> None:
        self._shared = tables or MemoryTables()
        self._watches: set[object] = set()
        self._is_closed = False

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """End all watches; the tables stay for the other planes."""
        self._is_closed = True
        for watch in self._watches:
            self._shared.listeners.pop(watch, None)

    @property
    def _tables(self) -> MemoryTables:
        if self._is_closed:
            raise ControlPlaneClosed("the control plane of diskless topics is closed")
        return self._shared

    async def bind(self, cluster_id: str) -> str:
        tables = self._tables
        tables.cluster_id = tables.cluster_id or cluster_id  # diskless.C11
        return tables.cluster_id

    # -- logs

    async def create_logs(self, topic_id: UUID, topic: str, partition_count: int) -> None:
        tables = self._tables
        if topic_id in tables.deleted:  # diskless.C8
            return
        _, known = tables.topics.get(topic_id, (topic, 0))
        tables.topics[topic_id] = (topic, max(known, partition_count))
        for partition in range(known, partition_count):
            tables.logs[LogKey(topic_id, partition)] = MemoryLog()

    async def delete_topic(self, topic_id: UUID, now_ms: int) -> None:
        tables = self._tables
        _, count = tables.topics.pop(topic_id, ("", 0))
        tables.deleted.add(topic_id)  # diskless.C8
        for partition in range(count):
            log = tables.logs.pop(LogKey(topic_id, partition))
            tables.remove_runs(log, len(log.runs), now_ms)

    async def topics(self) -> dict[UUID, tuple[str, int]]:
        return dict(self._tables.topics)

    # -- writing

    async def commit(self, new: NewObject, now_ms: int) -> Sequence[BatchOutcome]:
        tables = self._tables
        check_object(new)
        if (known := tables.objects.get(new.key)) is not None:  # diskless.C2
            return list(known.outcomes)
        if tables.is_fenced(new.key):  # diskless.C10
            return [BatchOutcome(Code.KAFKA_STORAGE_ERROR)] * len(new.batches)
        logs = {key: tables.logs[key] for key in logs_of(new) if key in tables.logs}
        producers = {
            (key, producer_id): logs[key].producers[producer_id]
            for key, producer_id in producers_of(new)
            if key in logs and producer_id in logs[key].producers}
        plan = plan_commit(new, {key: log.bounds() for key, log in logs.items()}, producers, now_ms)
        added = MemoryObject(new.uploader, new.size, TimestampMs(now_ms), plan.outcomes)
        tables.objects[new.key] = added
        for run in plan.runs:
            tables.enter_run(run, age_ms(run, now_ms))
        for (key, producer_id), history in plan.producers.items():
            logs[key].producers[producer_id] = history
        added.mark_if_unused(now_ms)
        self._notify(plan.high_watermarks)
        return list(plan.outcomes)

    def _notify(self, high_watermarks: dict[LogKey, Offset]) -> None:
        """diskless.C9: as soon as the loop runs again."""
        loop = asyncio.get_running_loop()
        for watch in list(self._shared.listeners):
            for key, high_watermark in high_watermarks.items():
                loop.call_soon(self._call, watch, key, high_watermark)

    def _call(self, watch: object, key: LogKey, high_watermark: Offset) -> None:
        if (listener := self._shared.listeners.get(watch)) is not None:
            listener(key, high_watermark)

    async def producers(self, log: LogKey) -> Sequence[ProducerState]:
        found = self._tables.logs.get(log)
        return [] if found is None else [
            ProducerState(producer_id, each.epoch, each.batches[-1].last_sequence,
                          each.last_timestamp)
            for producer_id, each in sorted(found.producers.items())]

    async def expire_producers(self, before_ms: int, limit: int) -> int:
        expired = [(log, producer_id) for log in self._tables.logs.values()
                   for producer_id, each in log.producers.items()
                   if each.last_commit_ms < before_ms][:limit]
        for log, producer_id in expired:
            del log.producers[producer_id]
        return len(expired)

    # -- reading

    async def bounds(self, logs: Sequence[LogKey]) -> Sequence[LogBounds | None]:
        known = self._tables.logs
        return [known[key].bounds() if key in known else None for key in logs]

    async def find(
        self, requests: Sequence[FindRequest], *, runs_max: int = FIND_RUNS_MAX
    ) -> Sequence[FoundRuns]:
        return [_found(self._tables.logs.get(each.log), each, runs_max) for each in requests]

    async def find_timestamp(
        self, log: LogKey, timestamp_ms: int, *, from_offset: int = 0
    ) -> BatchRun | None:
        return next((run for run in self._runs(log, from_offset)
                     if run.max_timestamp >= timestamp_ms), None)

    async def find_max_timestamp(self, log: LogKey, *, from_offset: int = 0) -> BatchRun | None:
        return max(self._runs(log, from_offset), key=lambda run: run.max_timestamp, default=None)

    def _runs(self, key: LogKey, from_offset: int) -> Sequence[BatchRun]:
        log = self._tables.logs.get(key)
        return [] if log is None else log.runs[log.index_at(from_offset):]

    def watch(self, listener: Listener) -> Callable[[], None]:
        watch = object()
        self._tables.listeners[watch] = listener
        self._watches.add(watch)

        def end() -> None:
            self._watches.discard(watch)
            self._shared.listeners.pop(watch, None)

        return end

    # -- removing

    async def delete_records(self, log: LogKey, before: Offset, now_ms: int) -> LogBounds | None:
        found = self._tables.logs.get(log)
        if found is None:
            return None
        start = found.high_watermark if before == -1 else before
        if found.log_start < start <= found.high_watermark:
            found.log_start = start
            self._tables.start_at(found, start, now_ms)
            self._notify({log: MOVED_START})
        return found.bounds()

    async def retain(
        self, rules: Sequence[RetentionRule], now_ms: int, *, runs_max: int = FIND_RUNS_MAX
    ) -> Sequence[LogBounds | None]:
        return [self._retain(rule, now_ms, runs_max) for rule in rules]

    def _retain(self, rule: RetentionRule, now_ms: int, runs_max: int) -> LogBounds | None:
        log = self._tables.logs.get(rule.log)
        if log is None:
            return None
        oldest = [RunAge(run.end_offset, run.size, age)
                  for run, age in zip(log.runs[:runs_max], log.ages[:runs_max], strict=True)]
        if (end := end_of_expired(rule, log.size, oldest, now_ms)) is not None:
            log.log_start = end
            self._tables.start_at(log, end, now_ms)
            self._notify({rule.log: MOVED_START})
        return log.bounds()

    # -- objects

    async def objects(self, *, after: str = "", limit: int = LIMIT_MAX) -> Sequence[ObjectState]:
        found = self._tables.objects
        return [found[key].state(key) for key in sorted(found) if key > after][:limit]

    async def known_objects(self, keys: Sequence[str]) -> set[str]:
        return {key for key in keys if key in self._tables.objects}

    async def deletable_objects(self, marked_before_ms: int, limit: int) -> Sequence[str]:
        found = sorted((each.marked_ms, key) for key, each in self._tables.objects.items()
                       if each.marked_ms is not None and each.marked_ms < marked_before_ms)
        return [key for _, key in found[:limit]]

    async def forget_objects(self, keys: Sequence[str]) -> None:
        objects = self._tables.objects
        gone = [key for key in keys if key in objects and objects[key].marked_ms is not None]
        self._tables.fence(gone)  # diskless.C10
        for key in gone:
            objects.pop(key, None)  # a key may be given twice

    async def condemn_objects(self, keys: Sequence[str]) -> set[str]:
        unknown = {key for key in keys if key not in self._tables.objects}
        self._tables.fence(unknown)  # diskless.C10
        return unknown

    async def identity(self) -> UUID:
        return self._tables.identity

    async def object_runs(self, key: str) -> Sequence[BatchRun]:
        found = self._tables.objects.get(key)
        return [] if found is None else sorted(found.runs.values(), key=lambda run: run.position)

    async def sparse_objects(
        self, *, live_size_max: int, live_share_max: float, committed_before_ms: int, limit: int
    ) -> Sequence[ObjectState]:
        states = [each.state(key) for key, each in self._tables.objects.items()]
        sparse = [each for each in states
                  if each.marked_ms is None and each.committed_ms < committed_before_ms
                  and (each.live_size <= live_size_max
                       or each.live_size <= each.size * live_share_max)]
        return sorted(sparse, key=lambda each: (each.committed_ms, each.key))[:limit]

    async def rewrite(
        self, new: NewObject, replacements: Sequence[Replacement], now_ms: int
    ) -> bool:
        assert not new.batches, "the runs have their offsets"
        tables = self._tables
        if new.key in tables.objects:
            return True  # it was carried out before
        if tables.is_fenced(new.key):  # diskless.C10
            return False
        for old, key, _ in replacements:
            assert key == new.key, "one object at a time"
            log = tables.logs.get(old.log)
            index = -1 if log is None else log.index_at(old.base_offset)
            if log is None or index >= len(log.runs) or log.runs[index] != old:
                return False
        added = MemoryObject(new.uploader, new.size, TimestampMs(now_ms))
        tables.objects[new.key] = added
        for old, key, position in replacements:
            log = tables.logs[old.log]
            run = old._replace(key=key, position=position)
            log.runs[log.index_at(old.base_offset)] = run
            added.runs[run.log, run.base_offset] = run
            del tables.objects[old.key].runs[old.log, old.base_offset]
            tables.objects[old.key].mark_if_unused(now_ms)
        added.mark_if_unused(now_ms)
        return True

    # -- the remote tier

    async def claim_tiering(
        self, log: LogKey, owner: str, now_ms: int, lease_ms: int
    ) -> TieringClaim | None:
        found = self._tables.logs.get(log)
        if found is None:
            return None
        epoch, until = 1, TimestampMs(now_ms + lease_ms)
        if found.claim is not None:
            is_own = found.claim.owner == owner
            if not is_own and found.claim.until_ms > now_ms:
                return None
            epoch = found.claim.epoch if is_own else found.claim.epoch + 1
        found.claim = TieringClaim(log, epoch, owner, until)
        return found.claim

    async def aged_runs(
        self, log: LogKey, before_ms: int, *, limit: int = FIND_RUNS_MAX
    ) -> Sequence[BatchRun]:
        found, aged = self._tables.logs.get(log), list[BatchRun]()
        if found is not None:
            for run, age in zip(found.runs[:limit], found.ages[:limit], strict=True):
                if age >= before_ms:
                    break
                aged.append(run)
        return aged

    async def note_tiered(
        self, claim: TieringClaim, end_offset: Offset, now_ms: int
    ) -> LogBounds | None:
        log = self._tables.logs.get(claim.log)
        if (log is None or log.claim is None
                or (log.claim.epoch, log.claim.owner) != (claim.epoch, claim.owner)):
            return None
        self._tables.start_at(log, min(end_offset, log.high_watermark), now_ms)
        return log.bounds()

    async def advance_log_start(
        self, log: LogKey, log_start: Offset, now_ms: int  # noqa: ARG002 of the protocol
    ) -> LogBounds | None:
        found = self._tables.logs.get(log)
        if found is None:
            return None
        if (start := min(log_start, found.diskless_start)) > found.log_start:
            found.log_start = start
            self._notify({log: MOVED_START})
        return found.bounds()

    # -- logs that were on disks

    async def adopt_log(self, adopted: AdoptedLog, now_ms: int) -> bool:
        log = self._tables.logs.get(adopted.log)
        verdict = judge_adoption(
            None if log is None else LogBefore(log.bounds(), log.lineage), adopted)
        if log is None or verdict is not AdoptionVerdict.ENTER:
            return verdict is AdoptionVerdict.KNOWN
        log.log_start = adopted.log_start_offset
        log.diskless_start = log.high_watermark = adopted.end_offset
        log.lineage, log.producers = lineage_of(adopted), histories_of(adopted, now_ms)
        _raise_claim(log, adopted.log, adopted.epoch)
        return True

    async def lineages(self, logs: Sequence[LogKey]) -> Sequence[Lineage | None]:
        found = [self._tables.logs.get(log) for log in logs]
        return [None if log is None else log.lineage for log in found]

    async def restore_lineage(self, log: LogKey, lineage: Lineage) -> None:
        found = self._tables.logs.get(log)
        if found is not None and found.lineage == BORN_DISKLESS:
            found.lineage = lineage
            _raise_claim(found, log, lineage[-1][0])

    # -- rebuilding

    async def restore_objects(
        self, objects: Sequence[tuple[NewObject, Sequence[Offset]]], now_ms: int
    ) -> None:
        tables = self._tables
        for new, offsets in objects:
            check_object(new)
            if new.key in tables.objects or tables.is_fenced(new.key):  # diskless.C10
                continue
            known = {(key, producer_id): log.producers[producer_id]
                     for key, producer_id in producers_of(new)
                     if (log := tables.logs.get(key)) is not None and producer_id in log.producers}
            plan = plan_restore((new, offsets), known, now_ms, is_free=self._is_free)
            added = tables.objects[new.key] = MemoryObject(
                new.uploader, new.size, TimestampMs(now_ms), restored_outcomes(offsets))
            for run in plan.runs:
                tables.enter_run(run, age_ms(run, now_ms))
            for (key, producer_id), history in plan.producers.items():
                tables.logs[key].producers[producer_id] = history
            added.mark_if_unused(now_ms)

    def _is_free(self, key: LogKey, base: Offset, end: Offset) -> bool:
        log = self._tables.logs.get(key)
        if log is None or end <= log.diskless_start:
            return False
        index = log.index_at(base)
        return index >= len(log.runs) or log.runs[index].base_offset >= end

    async def restore_bounds(
        self, log: LogKey, log_start: Offset, diskless_start: Offset, high_watermark: Offset
    ) -> None:
        found = self._tables.logs.get(log)
        if found is None:
            return
        found.log_start = max(found.log_start, log_start)
        diskless_start = max(found.log_start, found.diskless_start, diskless_start)
        found.high_watermark = max(found.high_watermark, high_watermark, diskless_start)
        self._tables.start_at(found, diskless_start, None)


def _raise_claim(log: MemoryLog, key: LogKey, epoch: int) -> None:
    known = 0 if log.claim is None else log.claim.epoch
    log.claim = TieringClaim(key, max(epoch, known), OWNER, TimestampMs(0))


def _found(log: MemoryLog | None, request: FindRequest, runs_max: int) -> FoundRuns:
    if log is None:
        return FoundRuns(None)
    runs, size = list[BatchRun](), 0
    if log.diskless_start <= request.offset < log.high_watermark:
        for run in log.runs[(first := log.index_at(request.offset)):first + runs_max]:
            if runs and size >= request.max_bytes:
                break
            runs.append(run)
            size += run.size
    return FoundRuns(log.bounds(), tuple(runs))

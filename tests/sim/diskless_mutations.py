"""Planted bugs of diskless topics: each breaks one rule of the writer, reader, plane or cleaner."""

import asyncio
import dataclasses
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest

from quipu.diskless.cleaning.deletion import Deletion
from quipu.diskless.cleaning.orphans import Orphans
from quipu.diskless.control_plane import commit_plan, sequences
from quipu.diskless.control_plane.interface import BatchOutcome, Replacement
from quipu.diskless.control_plane.memory import MemoryControlPlane
from quipu.diskless.control_plane.memory_tables import MemoryObject, MemoryTables
from quipu.diskless.control_plane.sequences import ProducerHistory, SequenceVerdict
from quipu.diskless.errors import CommitOutcomeUnknown
from quipu.diskless.objects.names import find_name
from quipu.diskless.reading.reader import DisklessReader
from quipu.diskless.values import BatchCoordinates, BatchRun, LogKey, NewObject
from quipu.diskless.writing.attempts import Attempts
from quipu.diskless.writing.producer_guard import ProducerGuard
from quipu.diskless.writing.writer import DisklessWriter
from quipu.model.errors import QuipuError
from quipu.model.ids import Offset, TimestampMs
from quipu.runtime.objects.errors import ObjectStoreError
from quipu.runtime.objects.store import Buffer
from quipu.runtime.spawn import spawn

# -- writing


def acks_before_commit(patch: pytest.MonkeyPatch) -> None:
    """diskless.W3: batches are answered with the offsets that they will probably get."""
    commit = Attempts.commit

    async def later(self: Attempts, new: NewObject) -> None:
        with suppress(QuipuError):
            await commit(self, new)

    async def mutant(self: Attempts, new: NewObject) -> Sequence[BatchOutcome]:
        logs = list({batch.log: None for batch in new.batches})
        bounds = dict(zip(logs, await self._plane.bounds(logs), strict=True))
        ends = {log: int(each.high_watermark) for log, each in bounds.items() if each is not None}
        spawn(later(self, new), "commit later")
        outcomes = []
        for batch in new.batches:
            base = ends.get(batch.log, 0)
            outcomes.append(BatchOutcome(base_offset=Offset(base)))
            ends[batch.log] = base + batch.record_count
        return outcomes

    patch.setattr(Attempts, "commit", mutant)


def commits_before_upload(patch: pytest.MonkeyPatch) -> None:
    """diskless.W3: an object is committed while it is being stored."""
    put = Attempts.put

    async def later(self: Attempts, key: str, buffers: list[bytes], size: int) -> None:
        with suppress(QuipuError):
            await put(self, key, buffers, size)

    async def mutant(self: Attempts, key: str, buffers: Sequence[Buffer], size: int) -> bool:
        spawn(later(self, key, [bytes(each) for each in buffers], size), "store later")
        return True

    patch.setattr(Attempts, "put", mutant)


def commits_again_under_another_key(patch: pytest.MonkeyPatch) -> None:
    """diskless.W6: after an unknown outcome the same batches are committed as another object."""
    commit = Attempts.commit

    async def mutant(self: Attempts, new: NewObject) -> Sequence[BatchOutcome]:
        try:
            data = await self._store.get(new.key)
        except ObjectStoreError:
            return await commit(self, new)
        for attempt in range(5):
            name = find_name(new.key)
            assert name is not None
            key = name._replace(writer=UUID(int=name.writer.int ^ attempt)).key
            try:
                if attempt:
                    await self._store.put(key, [data])
                return await self._plane.commit(new._replace(key=key), self._clock.now_ms())
            except (CommitOutcomeUnknown, ObjectStoreError):
                continue
        return await commit(self, new)

    patch.setattr(Attempts, "commit", mutant)


def commits_as_uploaded(patch: pytest.MonkeyPatch) -> None:
    """diskless.W3: the object that is stored first is committed first."""
    async def mutant(self: DisklessWriter) -> None:
        try:
            while self._flights:
                await asyncio.wait([each.uploaded for each in self._flights],
                                   return_when=asyncio.FIRST_COMPLETED)
                flight = next(each for each in self._flights if each.uploaded.done())
                error, outcomes = flight.uploaded.result(), list[BatchOutcome]()
                if error is None:
                    try:
                        outcomes = list(await self._commit(flight))
                    except QuipuError as failed:
                        error = failed
                self._flights.remove(flight)
                self._end(flight, outcomes, error)
        finally:
            self._committer = None

    patch.setattr(DisklessWriter, "_commit_all", mutant)


def followers_go_on(patch: pytest.MonkeyPatch) -> None:
    """diskless.W4: batches behind one that failed are committed."""
    patch.setattr(DisklessWriter, "_refuse_followers", lambda *_: [])
    latecomers_go_on(patch)


def latecomers_go_on(patch: pytest.MonkeyPatch) -> None:
    """diskless.W4: a batch that comes after the failure of one before it is taken."""
    patch.setattr(ProducerGuard, "forbids", lambda *_: False)


# -- reading


def ends_as_known(patch: pytest.MonkeyPatch) -> None:
    """A broker returns the end that it knows of; another one has committed more."""
    refresh = DisklessReader.refresh

    async def mutant(self: DisklessReader, logs: Sequence[LogKey]) -> None:
        await refresh(self, [log for log in logs if self.bounds(log) is None])

    patch.setattr(DisklessReader, "refresh", mutant)


def own_commits_follow(patch: pytest.MonkeyPatch) -> None:
    """A broker takes its own batches for those that follow what it knows of a log."""
    committed = DisklessReader.committed

    def mutant(
        self: DisklessReader, new: NewObject, outcomes: Sequence[BatchOutcome], logs: Any
    ) -> None:
        ends: dict[LogKey, int] = {}
        wrong = []
        for batch, outcome in zip(new.batches, outcomes, strict=True):
            known = self.bounds(batch.log)
            if outcome.base_offset >= 0 and not outcome.is_duplicate and known is not None:
                base = ends.get(batch.log, int(known.high_watermark))
                ends[batch.log] = base + batch.record_count
                wrong.append(outcome._replace(base_offset=Offset(base)))
            else:
                wrong.append(outcome)
        committed(self, new, wrong, logs)

    patch.setattr(DisklessReader, "committed", mutant)


def missed_commits_stay_missed(patch: pytest.MonkeyPatch) -> None:
    """diskless.R12: nobody looks for commits whose notification was lost."""
    noticed = DisklessReader._noticed

    def mutant(self: DisklessReader, log: LogKey | None, high_watermark: Offset) -> None:
        if log is not None:
            noticed(self, log, high_watermark)

    async def no_poll(self: DisklessReader) -> None:
        del self

    patch.setattr(DisklessReader, "_noticed", mutant)
    patch.setattr(DisklessReader, "_poll", no_poll)


# -- the control plane


def copies_committed(patch: pytest.MonkeyPatch) -> None:
    """diskless.C3: a batch that a producer sends again is accepted again."""
    patch.setattr(commit_plan, "judge", lambda *_: SequenceVerdict())


def one_batch_remembered(patch: pytest.MonkeyPatch) -> None:
    """diskless.C3: only the last batch of a producer is recognised as a copy."""
    remember = sequences.remember

    def mutant(
        history: ProducerHistory | None, batch: BatchCoordinates, base: Offset, now_ms: int
    ) -> ProducerHistory:
        found = remember(history, batch, base, now_ms)
        return found._replace(batches=found.batches[-1:])

    patch.setattr(commit_plan, "remember", mutant)


def marked_too_early(patch: pytest.MonkeyPatch) -> None:
    """diskless.C6: an object is marked for deletion when the first of its runs goes."""
    def mutant(self: MemoryObject, now_ms: int) -> None:
        self.marked_ms = TimestampMs(now_ms)

    patch.setattr(MemoryTables, "remove_runs", _marking(MemoryTables.remove_runs, mutant))


def _marking(remove: Any, mark: Any) -> Any:
    def mutant(self: MemoryTables, log: Any, count: int, now_ms: int | None) -> None:
        keys = {run.key: None for run in log.runs[:count]}
        remove(self, log, count, now_ms)
        for key in keys:
            if now_ms is not None and key in self.objects:
                mark(self.objects[key], now_ms)

    return mutant


def rewrites_unchecked(patch: pytest.MonkeyPatch) -> None:
    """A rewrite moves runs that have gone, or have moved elsewhere, since it read them."""
    rewrite = MemoryControlPlane.rewrite

    async def mutant(
        self: MemoryControlPlane, new: NewObject, replacements: Sequence[Replacement], now_ms: int
    ) -> bool:
        if await rewrite(self, new, replacements, now_ms):
            return True
        tables = self._tables
        if tables.is_fenced(new.key):
            return False
        added = tables.objects[new.key] = MemoryObject(
            new.uploader, new.size, TimestampMs(now_ms))
        for old, key, position in replacements:
            log = tables.logs.get(old.log)
            if log is None:
                continue
            index, run = log.index_at(old.base_offset), old._replace(key=key, position=position)
            added.runs[run.log, run.base_offset] = run
            if index < len(log.runs) and log.runs[index].base_offset == old.base_offset:
                found: BatchRun = log.runs[index]
                tables.objects[found.key].runs.pop((found.log, found.base_offset), None)
                tables.objects[found.key].mark_if_unused(now_ms)
                log.runs[index] = run
        added.mark_if_unused(now_ms)
        return True

    patch.setattr(MemoryControlPlane, "rewrite", mutant)


def fences_down(patch: pytest.MonkeyPatch) -> None:
    """diskless.C10: an object that was given up is committed after all."""
    patch.setattr(MemoryTables, "is_fenced", lambda *_: False)


# -- clean-up


def deletes_at_once(patch: pytest.MonkeyPatch) -> None:
    """diskless.cleaning.L1: objects go as soon as nothing refers to them."""
    run = Deletion.run

    async def mutant(self: Deletion) -> None:
        self._limits = dataclasses.replace(self._limits, object_grace_ms=0)
        await run(self)

    patch.setattr(Deletion, "run", mutant)


def orphans_not_condemned(patch: pytest.MonkeyPatch) -> None:
    """diskless.cleaning.O1: orphans are deleted although their writers may commit them."""
    async def mutant(self: Orphans, keys: Sequence[str]) -> None:
        await self._store.delete(list(keys))

    patch.setattr(Orphans, "discard", mutant)


def orphans_stay(patch: pytest.MonkeyPatch) -> None:
    """Objects that were never committed are left."""
    async def mutant(self: Orphans) -> None:
        del self

    patch.setattr(Orphans, "run", mutant)

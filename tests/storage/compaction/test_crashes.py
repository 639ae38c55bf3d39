"""A power loss at any step of a pass of compaction, and histories of many passes."""

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from quipu.model.ids import LogOffset, Offset
from quipu.runtime.disks.sim_disk import SimDisk
from quipu.storage.log import Log
from quipu.storage.log_directory import RecoveryPoint
from quipu.wire.record_batch import Record
from tests.storage.builders import DIRECTORY, NOW_MS, data_disk, open_log
from tests.storage.compaction.compacting import (
    SMALL_SEGMENTS,
    all_records,
    append_pairs,
    flush,
    latest,
    run_pass,
)

KEYS = [b"a", b"b", b"c", b"d", b"long" * 10]


class Killed(Exception):
    """The process has ended."""


class Mortal(SimDisk):
    """Ends the process at the `left`-th change of the disk."""

    left = 1 << 60

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed

    def take_space(self, size: int, path: str) -> None:
        self._count()
        super().take_space(size, path)

    def count_sync(self, path: str) -> None:
        self._count()
        super().count_sync(path)


def _mortal(name: str) -> Callable[..., Any]:
    def change(self: Mortal, *args: Any, **names: Any) -> Any:
        self._count()
        return getattr(SimDisk, name)(self, *args, **names)
    return change


for _name in ("rename", "remove", "write", "sync_directory"):
    setattr(Mortal, _name, _mortal(_name))


def a_dirty_log(disk: SimDisk) -> Log:
    log = open_log(disk, SMALL_SEGMENTS)
    for number in range(12):
        append_pairs(log, [(b"k%d" % (number % 5), None if number == 7 else b"%d" % number),
                           (b"x%d" % number, b"x" * 100)])
    log.roll(NOW_MS)
    append_pairs(log, [(b"active", b"1")])
    flush(log)
    return log


def count_changes() -> int:
    disk = Mortal()
    disk.make_directory("data")
    disk.sync_directory("data")
    log = a_dirty_log(disk)
    disk.left = 1 << 30
    run_pass(log)
    return (1 << 30) - disk.left


def test_a_power_loss_at_any_step_loses_no_record() -> None:
    """K5: cut off at any change of the disk, a pass is complete or undone; no key changes.

    Shows storage.KS1, and that files are removed only after the names are durable.
    """
    steps = count_changes()
    assert steps > 20
    for step in range(steps + 1):
        for seed in range(3):
            disk = Mortal()
            disk.make_directory("data")
            disk.sync_directory("data")
            log = a_dirty_log(disk)
            before, flushed = all_records(log), log.flusher.flushed_log
            disk.left = step
            with suppress(Killed):
                run_pass(log)
            disk.left = 1 << 60
            disk.crash(random.Random(seed))
            again = open_log(disk, SMALL_SEGMENTS, RecoveryPoint(flushed_log=flushed))
            assert again.failure is None, (step, seed, again.failure)
            after = all_records(again)
            assert latest(after) == latest(before), (step, seed)
            assert {record.offset for record in after} <= {record.offset for record in before}
            assert not [name for name in disk.list(DIRECTORY) if name.endswith(".new")]
            flush(again)
            run_pass(again, nonce="again")
            assert latest(all_records(again)) == latest(before)


class CompactedLog(RuleBasedStateMachine):
    """A log that is written, compacted, restarted and cut off; the model is a list of records."""

    @initialize()
    def begin(self) -> None:
        self.disk = data_disk()
        self.log = open_log(self.disk, SMALL_SEGMENTS)
        self.model: list[Record] = []  # from the log start on
        self.all: list[Record] = []  # a crash may take back a move of the log start
        self.now_ms = NOW_MS
        self.sequences = [0, 0]
        self.passes = 0

    @rule(pairs=st.lists(st.tuples(st.sampled_from(KEYS), st.none() | st.binary(max_size=40)),
                         min_size=1, max_size=4),
          codec=st.integers(0, 4), producer=st.integers(-1, 1))
    def append(self, pairs: list[Any], codec: int, producer: int) -> None:
        sent = (-1, -1, -1) if producer < 0 else (producer, 0, self.sequences[producer])
        done = append_pairs(self.log, pairs, now_ms=self.now_ms, compression=codec, producer=sent)
        if producer >= 0:
            self.sequences[producer] += len(pairs)
        sent_records = [
            Record(key, value, (("h", key),), self.now_ms + number, done.base_offset + number)
            for number, (key, value) in enumerate(pairs)]
        self.model += sent_records
        self.all += sent_records

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @rule(ms=st.integers(1, 2000))
    def wait(self, ms: int) -> None:
        self.now_ms += ms

    @rule(take=st.sampled_from([0, 1, 2, 1 << 30]), map_size=st.sampled_from([1, 2000, 1 << 20]))
    def compact(self, take: int, map_size: int) -> None:
        flush(self.log)
        self.passes += 1
        run_pass(self.log, now_ms=self.now_ms, map_size_max=map_size, take=take,
                 nonce=str(self.passes))

    @rule(back=st.integers(0, 20), applies=st.booleans())
    def delete_records(self, back: int, applies: bool) -> None:
        """Move the log start, as DeleteRecords does, and maybe remove what lies below it."""
        before = Offset(max(self.log.log_start_offset, self.log.end_offset - back))
        self.log.delete_records(before, self.now_ms)
        self.model = [record for record in self.model if record.offset >= before]
        if applies:
            flush(self.log)
            self.log.apply_retention(self.now_ms)

    @rule()
    def restart(self) -> None:
        clean = self.log.close()
        assert clean is not None
        self.reopen(RecoveryPoint(clean.log_end, clean, is_current=True,
                                  committed_log=clean.log_end))

    @precondition(lambda self: self.passes > 0)
    @rule(seed=st.integers(0, 1 << 16))
    def crash(self, seed: int) -> None:
        flushed, committed = self.log.flusher.flushed_log, self.log.committed_log
        self.disk.crash(random.Random(seed))
        self.reopen(RecoveryPoint(flushed, committed_log=committed))
        assert self.log.log_end >= flushed
        start, end = self.log.log_start_offset, self.log.end_offset
        self.model = [record for record in self.all if start <= record.offset < end]
        self.all = [record for record in self.all if record.offset < end]
        for producer in (0, 1):  # as a client does after an error
            batches = self.log.producers.seen(producer)
            self.sequences[producer] = batches[-1].last_sequence + 1 if batches else 0

    def reopen(self, recovery: RecoveryPoint) -> None:
        self.log = open_log(self.disk, SMALL_SEGMENTS, recovery, now_ms=self.now_ms)
        assert self.log.failure is None, self.log.failure

    @invariant()
    def a_reader_sees_the_latest(self) -> None:
        found = all_records(self.log)
        assert latest(found) == latest(self.model)
        by_offset = {record.offset: record for record in self.model}
        assert all(by_offset[record.offset] == record for record in found)
        offsets = [record.offset for record in found]
        assert offsets == sorted(set(offsets))
        active = self.log.segments[-1].base_offset if self.log.segments else 0
        assert {each for each in by_offset if each >= active} <= set(offsets)
        entries = self.log.read_entries(LogOffset(self.log.first_log), 1 << 24)
        assert not entries or entries[-1].next_log == self.log.log_end


CompactedLog.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestCompactedLog = CompactedLog.TestCase

"""Checkers of stored logs; after each step, the machine that made it is checked.

    dense-offsets        log offsets and client offsets follow each other without a gap, and epochs
                         only grow
    same-batch           the same epoch and log offset mean the same batch on all nodes
    committed-stays      below its committed offset, every node has the same batches, and that
                         offset never falls while a process runs
    flushed-is-durable   what a log reports as flushed would survive a power loss
    one-head-per-epoch   in an epoch, only one process of one machine ever accepts writes
    serving-has-all      a serving member in the newest epoch has all that was ever committed
    given-stays          a node that serves reads in an epoch has a high watermark no lower than
                         any that readers got in earlier epochs
    acknowledged         what was acknowledged to a client with acks=all is committed
    successor-is-prefix  of two neighbours that serve in one epoch, the successor's log is a prefix
                         of the predecessor's (V22)
    in-flight            what only the predecessor has is not committed; every serving member has
                         durably what is (V22)

They read stored logs with the nodes' own code; `ClientHistory` checks what clients see.  The world
passes in the views of partitions.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from quipu.model.ids import LogOffset
from quipu.sim.world import Machine, Violation
from quipu.storage.log import Log
from quipu.wire.stored_batch import StoredHeader


class PartitionView(NamedTuple):
    """One partition on one machine."""

    name: str
    log: Log
    kept_end: int  # log offsets below survive a power loss
    committed: int  # log offsets below are committed, as far as this machine knows
    high_watermark: int  # the same in client offsets
    epoch: int
    is_serving: bool
    is_leading: bool
    is_giving: bool  # whether clients get records, and a high watermark, from this machine
    serving: tuple[str, ...]  # machines, in the order of the chain


# The partitions of a machine that may have changed since the last call.
Views = Callable[[Machine], Iterable[PartitionView]]


class _Batch(NamedTuple):
    epoch: int
    header_crc: int  # covers offsets, epoch and the body's own checksum
    next_log: int


@dataclass(slots=True, eq=False)
class _Seen:
    """The last state of one partition on one machine."""

    boot: int
    end: int = 0
    start: int = 0
    flushed: int = 0
    kept_end: int = 0
    committed: int = 0
    epoch: int = -1
    is_serving: bool = False
    is_leading: bool = False
    is_giving: bool = False
    batches: dict[int, _Batch] = field(default_factory=dict)  # by log offset, in order

    def mark(self) -> tuple[int, ...]:
        return (self.end, self.start, self.flushed, self.committed, self.epoch,
                self.is_serving, self.is_leading, self.is_giving)


class StoredLogs:
    """Runs all of these checks, for every partition of a world."""

    def __init__(self, views: Views) -> None:
        self.high_watermarks: dict[str, int] = {}
        self._views = views
        self._last_committed: dict[str, int] = {}  # the log offset of that batch
        self._newest_epoch: dict[str, int] = {}
        self._seen: dict[tuple[str, str], _Seen] = {}
        self._written: dict[str, dict[tuple[int, int], _Batch]] = {}  # by epoch and log offset
        self._committed: dict[str, dict[int, _Batch]] = {}  # by log offset
        self._heads: dict[tuple[str, int], tuple[str, int]] = {}
        self._given: dict[str, dict[int, int]] = {}  # the highest mark, by epoch

    def look(self, machine: Machine | None) -> None:
        if machine is None or machine.is_dead or machine.is_corrupt:
            return
        for view in self._views(machine):
            key = (machine.name, view.name)
            seen = self._seen.get(key)
            if seen is None or seen.boot != machine.boots:
                seen = self._seen[key] = _Seen(machine.boots)
            log = view.log
            mark = (log.log_end, log.segments[0].base_log, log.flusher.flushed_log, view.committed,
                    view.epoch, view.is_serving, view.is_leading, view.is_giving)
            if seen.mark() != mark:
                self._look_at(machine, view, seen)

    def forget(self, machine: Machine, name: str) -> None:
        """Expect nothing of a partition on a machine: its log there is another one now."""
        self._seen.pop((machine.name, name), None)

    def _look_at(self, machine: Machine, view: PartitionView, seen: _Seen) -> None:
        where = f"{machine.name} {view.name}"
        if view.committed < seen.committed:
            raise Violation(f"committed-stays: {where}: {view.committed} after {seen.committed}")
        if view.committed > view.log.log_end:
            raise Violation(f"committed-stays: {where} ends at {view.log.log_end}, "
                            f"committed is {view.committed}")
        self._read(where, view, seen)
        self._compare_committed(where, view, seen)
        if view.log.flusher.flushed_log == view.log.log_end:
            for segment in view.log.segments[-2:]:
                if not machine.disk.is_durable(segment.path):
                    raise Violation(f"flushed-is-durable: {where}: {segment.path} is not")
        seen.flushed = view.log.flusher.flushed_log
        seen.kept_end, seen.epoch = view.kept_end, view.epoch
        seen.is_serving, seen.is_leading = view.is_serving, view.is_leading
        seen.is_giving = view.is_giving
        if view.is_leading:
            self._one_head(where, machine, view)
        if view.is_serving:
            self._has_all(where, view, seen)
            self._in_chain(machine, view)
        if view.is_giving:
            self._gives_all(where, view)

    # -- one log

    def _read(self, where: str, view: PartitionView, seen: _Seen) -> None:
        """Update `seen.batches`, and compare new batches with all that were ever written."""
        log = view.log
        end, start = int(log.log_end), int(log.segments[0].base_log)
        batches = seen.batches
        if start != seen.start:
            batches.clear()
        while batches and next(reversed(batches.values())).next_log > end:
            batches.popitem()
        known = next(reversed(batches)) if batches else None
        if known is not None:
            first = next(log.read_stored(LogOffset(known))).header
            if _batch_of(first) != batches[known] or first.log_offset != known:
                batches.clear()  # the log was cut and written again
        after = next(reversed(batches.values())).next_log if batches else start
        last: StoredHeader | None = None
        written = self._written.setdefault(view.name, {})
        if after < end:
            for stored in log.read_stored(LogOffset(after)):
                header = stored.header
                _dense(where, last, header, after)
                last = header
                batch = batches[header.log_offset] = _batch_of(header)
                _same("same-batch", where, header.log_offset, batch,
                      written.setdefault((header.leader_epoch, header.log_offset), batch))
        seen.end, seen.start = end, start

    def _compare_committed(self, where: str, view: PartitionView, seen: _Seen) -> None:
        committed = self._committed.setdefault(view.name, {})
        for offset, batch in reversed(seen.batches.items()):
            if batch.next_log <= view.committed:
                if offset < seen.committed and committed.get(offset) == batch:
                    break  # checked before
                _same("committed-stays", where, offset, batch, committed.setdefault(offset, batch))
                if offset > self._last_committed.get(view.name, -1):
                    self._last_committed[view.name] = offset
        seen.committed = view.committed
        if view.high_watermark > self.high_watermarks.get(view.name, 0):
            self.high_watermarks[view.name] = view.high_watermark

    # -- several

    def _one_head(self, where: str, machine: Machine, view: PartitionView) -> None:
        head = self._heads.setdefault((view.name, view.epoch), (machine.name, machine.boots))
        if head != (machine.name, machine.boots):
            raise Violation(f"one-head-per-epoch: {where}, boot {machine.boots}, leads in "
                            f"{view.epoch}, as {head[0]}, boot {head[1]}, did")

    def _has_all(self, where: str, view: PartitionView, seen: _Seen) -> None:
        newest = self._newest_epoch.get(view.name, -1)
        last = self._last_committed.get(view.name)
        if view.epoch < newest or last is None or last < seen.start:
            return
        self._newest_epoch[view.name] = view.epoch
        if seen.batches.get(last) != self._committed[view.name][last]:
            raise Violation(f"serving-has-all: {where} serves in {view.epoch} without "
                            f"{self._committed[view.name][last]} at {last}")

    def _gives_all(self, where: str, view: PartitionView) -> None:
        given = self._given.setdefault(view.name, {})
        before = max((mark for epoch, mark in given.items() if epoch < view.epoch), default=0)
        if view.high_watermark < before:
            raise Violation(f"given-stays: {where} gives what is below {view.high_watermark} in "
                            f"{view.epoch}, and {before} were given before")
        given[view.epoch] = max(given.get(view.epoch, 0), view.high_watermark)

    def acknowledged(self, partition: tuple[str, int], offset: int) -> None:
        """The record at `offset` was acknowledged to a client with acks=all."""
        high_watermark = self.high_watermarks.get(f"{partition[0]}-{partition[1]}", 0)
        if offset >= high_watermark:
            raise Violation(f"acknowledged: {partition} {offset}, committed is {high_watermark}")

    def _in_chain(self, machine: Machine, view: PartitionView) -> None:
        members = [(name, self._seen.get((name, view.name))) for name in view.serving]
        for name, seen in members:
            kept = seen.kept_end if seen is not None else 0
            if kept < view.committed and seen is not None and seen.epoch == view.epoch:
                raise Violation(f"in-flight: {view.name}: {machine.name} takes {view.committed} "
                                f"for committed in {view.epoch}, {name} has kept {kept}")
        together = [(name, seen) for name, seen in members
                    if seen is not None and seen.is_serving and seen.epoch == view.epoch]
        for (earlier, one), (later, two) in pairwise(together):
            _prefix(view.name, earlier, one, later, two)


def _prefix(name: str, earlier: str, one: _Seen, later: str, two: _Seen) -> None:
    if two.end > one.end:
        raise Violation(f"successor-is-prefix: {name}: {later} ends at {two.end}, "
                        f"{earlier} before it at {one.end}")
    if two.batches:
        last = next(reversed(two.batches))
        if last >= one.start and one.batches.get(last) != two.batches[last]:
            raise Violation(f"successor-is-prefix: {name}: {later} has {two.batches[last]} at "
                            f"{last}, {earlier} before it {one.batches.get(last)}")


def _batch_of(header: StoredHeader) -> _Batch:
    return _Batch(header.leader_epoch, header.header_crc, header.next_log_offset)


def _dense(where: str, last: StoredHeader | None, header: StoredHeader, start: int) -> None:
    want = start if last is None else last.next_log_offset
    if header.log_offset != want or (last is not None and header.base_offset != last.next_offset):
        raise Violation(f"dense-offsets: {where}: {header.log_offset}/{header.base_offset} "
                        f"follows {want}")
    if last is not None and header.leader_epoch < last.leader_epoch:
        raise Violation(f"dense-offsets: {where}: epoch {header.leader_epoch} at "
                        f"{header.log_offset} follows {last.leader_epoch}")


def _same(rule: str, where: str, offset: int, found: _Batch, known: _Batch) -> None:
    if found != known:
        raise Violation(f"{rule}: {where} at {offset}: {found}, elsewhere {known}")

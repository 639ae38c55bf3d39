"""Checkers of stored logs: each looks at what one machine has changed in its last step.

    LogsAgree   logs are dense; the same epoch and log offset always mean the same batch; what was
                committed once is what every log has below its own committed offset

They read what nodes have stored, through the same eyes as the nodes; what clients see is checked
by `History`.  Views of partitions come from the world, which knows where nodes keep them.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from quipu.model.ids import LogOffset
from quipu.sim.world import Machine, Violation
from quipu.storage.log import Log
from quipu.wire.stored_batch import StoredHeader


class PartitionView(NamedTuple):
    """One partition on one machine."""

    name: str
    log: Log
    committed_log: int  # everything below is committed, as far as this machine knows


Views = Callable[[Machine], Iterable[PartitionView]]


class _Batch(NamedTuple):
    epoch: int
    header_crc: int  # covers offsets, epoch and the body's own checksum
    next_log: int


class LogsAgree:
    """One history per partition, of which every log has a part."""

    def __init__(self, views: Views, *, reigns: bool = True) -> None:
        self._views = views
        self._reigns = reigns  # does every process write in an epoch of its own?
        self._written: dict[str, dict[tuple[int, int], _Batch]] = {}  # by epoch and log offset
        self._committed: dict[str, dict[int, _Batch]] = {}  # by log offset
        self._seen: dict[tuple[str, str], tuple[int, int, int]] = {}
        self.committed_end: dict[str, int] = {}

    def look(self, machine: Machine | None) -> None:
        if machine is None or not machine.is_up:
            return
        for view in self._views(machine):
            log = view.log
            mark = (log.log_end, view.committed_log, log.segments[0].base_log)
            key = (machine.name, view.name)
            before = self._seen.get(key)
            if before != mark:
                self._seen[key] = mark
                self._look_at(machine, view, before)

    def forget(self, machine: Machine) -> None:
        """It will start anew: look at all that it has."""
        for key in [each for each in self._seen if each[0] == machine.name]:
            del self._seen[key]

    def _look_at(
        self, machine: Machine, view: PartitionView, before: tuple[int, int, int] | None
    ) -> None:
        log, name = view.log, view.name
        where = f"{machine.name} {name}"
        if view.committed_log > log.log_end:
            raise Violation(f"committed is stored: {where} ends at {log.log_end}, "
                            f"committed {view.committed_log}")
        is_longer = before is not None and before[0] <= log.log_end and before[2] == mark_start(log)
        start = before[0] if before is not None and is_longer else log.segments[0].base_log
        if before is not None and is_longer:
            start = min(start, before[1])
        written = self._written.setdefault(name, {})
        committed = self._committed.setdefault(name, {})
        last: StoredHeader | None = None
        for stored in log.read_stored(LogOffset(start)):
            header = stored.header
            self._dense(where, last, header)
            last = header
            batch = _Batch(header.leader_epoch, header.header_crc, header.next_log_offset)
            if self._reigns:
                _same("same epoch and offset, same batch", where, header,
                      batch, written.setdefault((header.leader_epoch, header.log_offset), batch))
            if header.next_log_offset <= view.committed_log:
                _same("committed never changes", where, header,
                      batch, committed.setdefault(header.log_offset, batch))
        self.committed_end[name] = max(self.committed_end.get(name, 0), view.committed_log)

    def _dense(self, where: str, last: StoredHeader | None, header: StoredHeader) -> None:
        if last is None:
            return
        if header.log_offset != last.next_log_offset or header.base_offset != last.next_offset:
            raise Violation(f"offsets are dense: {where}: {header.log_offset}/{header.base_offset} "
                            f"follows {last.next_log_offset}/{last.next_offset}")
        if header.leader_epoch < last.leader_epoch:
            raise Violation(f"epochs grow: {where}: {header.leader_epoch} at {header.log_offset} "
                            f"follows {last.leader_epoch}")


def mark_start(log: Log) -> int:
    """Where the oldest segment begins."""
    return int(log.segments[0].base_log)


def _same(rule: str, where: str, header: StoredHeader, found: _Batch, known: _Batch) -> None:
    if found != known:
        raise Violation(f"{rule}: {where} at {header.log_offset} (type {header.batch_type}): "
                        f"{found}, elsewhere {known}")

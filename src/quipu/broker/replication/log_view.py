"""A partition's log as the core of its chain sees it (`quipu.chain.state.LogView`)."""

from operator import attrgetter
from typing import Any

from quipu.chain.messages import BEGIN, Mark
from quipu.model.ids import Epoch, LogOffset
from quipu.storage.log import Log


def _of_positions(name: str) -> Any:  # noqa: ANN401 the attribute's annotation says its type
    """An attribute of the log's positions; without a Python call, as it is read often."""
    return property(attrgetter(f"_positions.{name}"))


class StoredLog:
    """The loaded log of one partition; every property is the current value."""

    __slots__ = ("_end", "_log", "_positions")

    log_end: LogOffset = _of_positions("log_end")
    last_epoch: Epoch = _of_positions("leader_epoch")

    def __init__(self, log: Log) -> None:
        log.load()
        self._log = log
        self._positions = log.positions
        self._end = BEGIN

    @property
    def log_start(self) -> LogOffset:
        return self._log.first_log

    @property
    def copy_start(self) -> LogOffset:
        return self._log.copy_start

    @property
    def sync_floor(self) -> LogOffset:
        return self._log.sync_floor

    @property
    def end(self) -> Mark:
        log, end = self._positions, self._end
        if end[0] != log.log_end or end[1] != log.end_offset:
            end = self._end = Mark(log.log_end, log.end_offset)
        return end

    @property
    def durable(self) -> Mark:
        log, end = self._positions, self._end
        if log.is_durable:
            flusher = self._log.flusher
            return Mark(flusher.flushed_log, flusher.flushed_offset)
        if end[0] != log.log_end or end[1] != log.end_offset:
            end = self._end = Mark(log.log_end, log.end_offset)
        return end

    def epochs(self) -> list[tuple[Epoch, LogOffset]]:
        return self._log.epochs.by_log_offset()

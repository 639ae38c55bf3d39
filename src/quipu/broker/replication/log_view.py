"""A partition's log as the core of its chain sees it (`quipu.chain.standing.LogView`)."""

from quipu.model.ids import Epoch, LogOffset, Offset
from quipu.storage.log import Log


class StoredLog:
    """Everything as of now; the log is loaded."""

    __slots__ = ("_log",)

    def __init__(self, log: Log) -> None:
        log.load()
        self._log = log

    @property
    def log_start(self) -> LogOffset:
        return self._log.log_start_log_offset

    @property
    def log_end(self) -> LogOffset:
        return self._log.log_end

    @property
    def end_offset(self) -> Offset:
        return self._log.end_offset

    @property
    def durable_end(self) -> LogOffset:
        log = self._log
        return log.flushed_end if log.config.is_durable else log.log_end

    @property
    def durable_offset(self) -> Offset:
        log = self._log
        return log.flushed_offset if log.config.is_durable else log.end_offset

    @property
    def last_epoch(self) -> Epoch:
        return self._log.leader_epoch

    def epochs(self) -> list[tuple[Epoch, LogOffset]]:
        return self._log.epochs_log()

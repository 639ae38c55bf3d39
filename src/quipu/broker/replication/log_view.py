"""A partition's log as the core of its chain sees it (`quipu.chain.standing.LogView`)."""

from quipu.chain.messages import BEGIN, Mark
from quipu.model.ids import Epoch, LogOffset
from quipu.storage.log import Log


class StoredLog:
    """Everything as of now; the log is loaded."""

    __slots__ = ("_end", "_log")

    def __init__(self, log: Log) -> None:
        log.load()
        self._log = log
        self._end = BEGIN

    @property
    def log_start(self) -> LogOffset:
        log = self._log
        files = log.files
        return LogOffset(files[0].base_log) if files else log.log_start_log_offset

    @property
    def log_end(self) -> LogOffset:
        return self._log.log_end

    @property
    def end(self) -> Mark:
        log, end = self._log, self._end
        if end[0] != log.log_end or end[1] != log.end_offset:
            end = self._end = Mark(log.log_end, log.end_offset)
        return end

    @property
    def durable(self) -> Mark:
        log, end = self._log, self._end
        if log.is_durable:
            return Mark(log.flushed_end, log.flushed_offset)
        if end[0] != log.log_end or end[1] != log.end_offset:
            end = self._end = Mark(log.log_end, log.end_offset)
        return end

    @property
    def last_epoch(self) -> Epoch:
        return self._log.leader_epoch

    def epochs(self) -> list[tuple[Epoch, LogOffset]]:
        return self._log.epochs_log()

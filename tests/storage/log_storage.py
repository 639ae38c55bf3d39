"""A state log's storage that is one log without replicas: what is durable is kept."""

from collections.abc import Iterator, Sequence

from quipu.model.batch_types import BatchType
from quipu.model.errors import QuipuError
from quipu.model.ids import Epoch, LogOffset
from quipu.model.partition_log import InternalBatch
from quipu.storage.log import Log
from quipu.storage.state_log import internal_batches
from quipu.wire.record_batch import Record

EPOCH = Epoch(0)  # one writer, who never changes


class LogStorage:
    """See `quipu.storage.state_log.StateStorage`."""

    def __init__(self, log: Log) -> None:
        self._log = log

    @property
    def name(self) -> str:
        return self._log.name

    @property
    def failure(self) -> QuipuError | None:
        return self._log.failure

    @property
    def log_end(self) -> LogOffset:
        return self._log.log_end

    @property
    def first_log_offset(self) -> LogOffset:
        return self._log.first_log

    def append(
        self, batch_type: BatchType, records: Sequence[tuple[bytes | None, bytes]], now_ms: int
    ) -> None:
        self._log.append_records(
            batch_type, [Record(key, value, (), now_ms) for key, value in records],
            epoch=EPOCH, now_ms=now_ms)

    def roll(self, now_ms: int) -> None:
        self._log.roll(now_ms)

    def read(self, start: LogOffset) -> Iterator[InternalBatch]:
        return internal_batches(self._log, start)

    def drop_before(self, log_offset: LogOffset) -> int:
        return self._log.drop_segments_before(log_offset)

    async def committed(self) -> None:
        await self._log.flusher.flush()

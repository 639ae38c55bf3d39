"""Completes an append when it is flushed or committed, as its producer's acks ask.

Invariants
    broker.partitions.A1  an append with acks=all completes when it is committed.  With other
                          replicas that is when all of the chain have it; on the sole replica, when
                          it is flushed, if the topic's flush policy asks for that.  If a replica
                          joins in between, the append waits for it too
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from quipu.model.errors import Code, QuipuError, RequestError
from quipu.model.ids import LogOffset, Offset
from quipu.model.partition_log import ACKS_ALL, AppendDone, AppendResult

if TYPE_CHECKING:  # it makes these
    from quipu.broker.partitions.replicated_partition import ReplicatedPartition

Done = Callable[[Exception | None], None]


class UnacknowledgedAppend:
    """A batch that is appended, and not yet flushed or committed as its acks ask."""

    __slots__ = ("_acks", "_done", "_partition", "_result", "_size", "_timeout_ms")

    def __init__(
        self, partition: "ReplicatedPartition", result: AppendResult, size: int, *, acks: int,
        timeout_ms: int,
    ) -> None:
        self._partition = partition
        self._result = result
        self._size = size
        self._acks = acks
        self._timeout_ms = timeout_ms

    def when_done(self, done: AppendDone) -> None:
        """Call `done` with the result once the batch is kept, or with an error (model.P1)."""
        self._done = done
        partition = self._partition
        if self._acks == ACKS_ALL and not partition.is_sole_replica:
            self._await_commit()
        elif partition.log.is_durable:
            partition.log.flusher.when_flushed(
                Offset(self._result.last_offset + 1), self._flushed)
        else:
            self._kept(None)

    def _await_commit(self) -> None:
        partition = self._partition
        partition.commit_waiters.wait(
            Offset(self._result.last_offset + 1), partition.deadline(self._timeout_ms), self._kept)

    def _flushed(self, error: Exception | None) -> None:
        partition = self._partition
        if error is None:
            if self._acks == ACKS_ALL and not partition.is_sole_replica:
                self._await_commit()  # broker.partitions.A1: another replica has joined
                return
            if partition.waiters.waiting and partition.is_sole_replica:
                partition.waiters.advanced(self._size)
        self._kept(error)

    def _kept(self, error: Exception | None) -> None:
        self._done(self._result if error is None else as_quipu_error(error))


def when_committed(
    partition: "ReplicatedPartition", log_end: LogOffset, done: Done, timeout_ms: int | None
) -> None:
    """Call `done` once everything below `log_end` is committed, internal batches too."""
    if not partition.is_sole_replica:
        partition.commit_waiters.wait_log(log_end, partition.deadline(timeout_ms), done)
    elif partition.log.is_durable:
        def flushed(error: Exception | None) -> None:
            if error is None and not partition.is_sole_replica:  # broker.partitions.A1
                partition.commit_waiters.wait_log(log_end, partition.deadline(timeout_ms), done)
            else:
                done(error)

        partition.log.flusher.when_log_flushed(log_end, flushed)
    else:
        done(None)


async def committed(
    partition: "ReplicatedPartition", log_end: LogOffset, timeout_ms: int | None
) -> None:
    """Return once everything below `log_end` is committed; raise if it may not be."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(error: Exception | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    when_committed(partition, log_end, done, timeout_ms)
    await future


def as_quipu_error(error: Exception) -> QuipuError:
    """The error itself, or a KAFKA_STORAGE_ERROR with the same message."""
    if isinstance(error, QuipuError):
        return error
    return RequestError(str(error), code=Code.KAFKA_STORAGE_ERROR)

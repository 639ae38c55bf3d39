"""Opens logs again that have failed, or whose replication has halted, in the background.

    failed --the controller knows--> opened again --it knows that too--> syncs, or serves again

Each log is tried alone, again and again, with growing pauses; all other partitions continue.
Nothing is done until the controller knows of the failure: only then is it certain that no other
node relies on this replica, unless it is the last one that serves.

Invariants
    broker.replication.O1  a log is set aside and copied again only while the metadata says that
                           this replica does not serve, so the serving replicas have every
                           acknowledged record
    broker.replication.O2  the last serving replica is opened as it is, and only if it has all
                           acknowledged records: else it stays failed, and an operator decides
    broker.replication.O3  logs are opened one at a time, so that a node with many failed logs can
                           do other work

Not here: what the controller does about it (controller/failed_replicas.py), files
(storage/reopening.py).
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from quipu.model.chains import MemberState
from quipu.model.errors import CorruptLog, QuipuError
from quipu.model.ids import LogOffset
from quipu.runtime.spawn import spawn
from quipu.storage.log import Log
from quipu.storage.reopening import PreparedLog

if TYPE_CHECKING:
    from quipu.broker.replication.partition_chain import PartitionChain
    from quipu.broker.replication.replication import ChainReplication

LOOK_SECONDS: Final = 0.2  # between two passes over the failed logs
PAUSE_SECONDS_MIN: Final = 0.5  # before a log is tried again; doubled each time
PAUSE_SECONDS_MAX: Final = 60.0
RELAPSE_SECONDS: Final = 600.0  # a log that fails again within this time has a longer pause

_log = logging.getLogger(__name__)


class Logs(Protocol):
    """Opens logs again; see `storage.data_directory.DataDirectory`."""

    @property
    def failure(self) -> QuipuError | None: ...
    async def prepare(self, log: Log) -> PreparedLog: ...
    def open_again(self, log: Log, prepared: PreparedLog, *, may_discard: bool) -> Log: ...


class _FailedLog(NamedTuple):
    """One log that has failed."""

    due: float  # when to try again, in monotonic seconds
    pause: float  # how long to wait after that
    # Below this offset everything may have been acknowledged: the flushed offset, or the end of a
    # log that is not flushed.  It is that of the log that failed first.
    acknowledged_end: LogOffset


class LogRepairs:
    """The failed logs of one node."""

    def __init__(self, node: "ChainReplication", logs: Logs) -> None:
        self._node = node
        self._logs = logs
        self._waiting: dict[PartitionChain, _FailedLog] = {}
        # When each was last opened again, and how long to wait if it fails again soon.
        self._opened: dict[PartitionChain, tuple[float, float]] = {}
        self._task: asyncio.Task[None] | None = None
        self.count = 0  # logs that were opened again

    def add(self, chain: "PartitionChain") -> None:
        """Open the log of `chain`, which has failed, again in the background."""
        if chain not in self._waiting:
            log, now = chain.partition.log, self._node.monotonic()
            opened, pause = self._opened.pop(chain, (now, 0.0))
            if now - opened > RELAPSE_SECONDS:
                pause = 0.0
            self._waiting[chain] = _FailedLog(
                now + pause, max(pause, PAUSE_SECONDS_MIN),
                log.flusher.flushed_log if log.is_durable else log.log_end)
        if self._task is None:
            self._task = spawn(self._repair_all(), "repairs of logs")

    def forget(self, chain: "PartitionChain") -> None:
        """Do not open the log of `chain` again: this node is not a member any more."""
        self._waiting.pop(chain, None)
        self._opened.pop(chain, None)

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _repair_all(self) -> None:
        while self._waiting:
            await asyncio.sleep(LOOK_SECONDS)
            for chain, failed in list(self._waiting.items()):  # broker.replication.O3
                if chain not in self._waiting or self._node.monotonic() < failed.due:
                    continue
                if not self._node.reporter.is_failure_known(*chain.partition_key):
                    chain.report_failure()
                    continue
                self._waiting[chain] = failed._replace(
                    due=self._node.monotonic() + failed.pause,
                    pause=min(2 * failed.pause, PAUSE_SECONDS_MAX))
                try:
                    await self._repair(chain)
                except Exception as error:  # noqa: BLE001 the other logs are tried too
                    self._log_error(chain, error)
        self._task = None

    async def _repair(self, chain: "PartitionChain") -> None:
        failed = chain.partition.log
        prepared = await self._logs.prepare(failed)
        replica_set = chain.replica_set
        if chain not in self._waiting or replica_set is None:
            prepared.release()
            return
        is_serving = replica_set.state_of(self._node.node_id) is MemberState.SERVING
        if is_serving and len(replica_set.serving) > 1:
            prepared.release()
            return  # broker.replication.O1: other replicas serve again
        log = self._logs.open_again(failed, prepared, may_discard=not is_serving)
        if is_serving and log.failure is None:
            self._check_complete(log, self._waiting[chain].acknowledged_end)
        if log.failure is None:
            self._opened[chain] = self._node.monotonic(), self._waiting.pop(chain).pause
            self.count += 1
            _log.warning("%s: its log was opened again", chain.partition.topic_partition)
        chain.log_reopened(log)

    def _check_complete(self, log: Log, acknowledged_end: LogOffset) -> None:
        """Fail `log` if it ends before what was acknowledged (broker.replication.O2)."""
        if log.log_end < acknowledged_end:
            log.fail(CorruptLog(
                f"{log.name}: ends at log offset {log.log_end}, and records below "
                f"{acknowledged_end} were acknowledged; restore its files, or restart the node to "
                "go on without them"))

    def _log_error(self, chain: "PartitionChain", error: Exception) -> None:
        if not isinstance(error, QuipuError):
            _log.exception("%s: its log cannot be opened again", chain.partition.topic_partition)
            return
        _log.error("%s: its log cannot be opened again yet: %s", chain.partition.topic_partition,
                   error)
        if (failure := self._logs.failure) is not None:
            self._node.reporter.report_disk_failure(str(failure))

"""Partitions of this node whose log has failed, or whose replication has halted: opened again in
the background.

    failed --the controller knows--> opened again --it knows that too--> syncs, or serves again

Each is tried alone, again and again, with growing pauses; every other partition goes on.  While the
controller does not know of the failure nothing is done: only then is it certain that nobody counts
on this replica, but where it is the last one that serves.

Invariants
    O1  a log is set aside and copied anew only while the metadata says that this replica does not
        serve: so whoever serves has every record that was acknowledged
    O2  the last replica that serves is opened as it is, and only if it has everything that it had:
        else it stays failed, for a person to decide
    O3  one at a time: a node with many failed logs is not busy with them alone

Not here: what the controller does about it (controller/detached.py), files (storage/reopening.py).
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from quipu.model.chains import MemberState
from quipu.model.errors import CorruptLog, QuipuError
from quipu.model.ids import LogOffset
from quipu.runtime.spawn import spawn
from quipu.storage.data_directory import Prepared
from quipu.storage.log import Log

if TYPE_CHECKING:
    from quipu.broker.replication.partition_chain import PartitionChain
    from quipu.broker.replication.replication import Replication

LOOK_SECONDS: Final = 0.2  # between two looks at what is to be done
PAUSE_SECONDS_MIN: Final = 0.5  # before a log is tried again; doubled each time
PAUSE_SECONDS_MAX: Final = 60.0
RELAPSE_SECONDS: Final = 600.0  # a log that fails again within that time waits longer than before

_log = logging.getLogger(__name__)


class Logs(Protocol):
    """Where the logs are; see `storage.data_directory.DataDirectory`."""

    @property
    def failure(self) -> QuipuError | None: ...
    async def prepare(self, log: Log) -> Prepared: ...
    def open_again(self, log: Log, prepared: Prepared, *, may_discard: bool) -> Log: ...


class _Case(NamedTuple):
    """One log that has failed."""

    due: float  # when to try again, in monotonic seconds
    pause: float  # and how long to wait then
    wanted: LogOffset  # where it ended as far as it was acknowledged: what was flushed, or, if
    # that was not asked for, all.  Of the log that failed first: those after it may know less


class Repairs:
    """The failed logs of one node."""

    def __init__(self, node: "Replication", logs: Logs) -> None:
        self._node = node
        self._logs = logs
        self._waiting: dict[PartitionChain, _Case] = {}
        # When each was last opened again, and how long to wait if it fails again soon.
        self._opened: dict[PartitionChain, tuple[float, float]] = {}
        self._task: asyncio.Task[None] | None = None
        self.count = 0  # logs that were opened again

    def add(self, chain: "PartitionChain") -> None:
        """The log of `chain` has failed."""
        if chain not in self._waiting:
            log, now = chain.partition.log, self._node.monotonic()
            opened, pause = self._opened.pop(chain, (now, 0.0))
            if now - opened > RELAPSE_SECONDS:
                pause = 0.0
            self._waiting[chain] = _Case(
                now + pause, max(pause, PAUSE_SECONDS_MIN),
                log.flushed_end if log.is_durable else log.log_end)
        if self._task is None:
            self._task = spawn(self._repair_all(), "repairs of logs")

    def forget(self, chain: "PartitionChain") -> None:
        """This node has no more part in it."""
        self._waiting.pop(chain, None)
        self._opened.pop(chain, None)

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _repair_all(self) -> None:
        while self._waiting:
            await asyncio.sleep(LOOK_SECONDS)
            for chain, case in list(self._waiting.items()):  # O3
                if chain not in self._waiting or self._node.monotonic() < case.due:
                    continue
                if not self._node.reporter.is_failure_known(*chain.partition_key):
                    chain.tell_failure()
                    continue
                self._waiting[chain] = case._replace(
                    due=self._node.monotonic() + case.pause,
                    pause=min(2 * case.pause, PAUSE_SECONDS_MAX))
                try:
                    await self._repair(chain)
                except Exception as error:  # noqa: BLE001 the others must have their turn
                    self._tell(chain, error)
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
            return  # O1: others have come back meanwhile
        log = self._logs.open_again(failed, prepared, may_discard=not is_serving)
        if is_serving and log.failure is None:
            self._check_complete(log, self._waiting[chain].wanted)
        if log.failure is None:
            self._opened[chain] = self._node.monotonic(), self._waiting.pop(chain).pause
            self.count += 1
            _log.warning("%s: its log was opened again", chain.partition.topic_partition)
        chain.opened_again(log)

    def _check_complete(self, log: Log, wanted: LogOffset) -> None:
        """O2"""
        if log.log_end < wanted:
            log.fail(CorruptLog(
                f"{log.name}: ends at log offset {log.log_end}, and {wanted} were acknowledged; "
                "restore its files, or restart the node to go on without what is lost"))

    def _tell(self, chain: "PartitionChain", error: Exception) -> None:
        if not isinstance(error, QuipuError):
            _log.exception("%s: its log cannot be opened again", chain.partition.topic_partition)
            return
        _log.error("%s: its log cannot be opened again yet: %s", chain.partition.topic_partition,
                   error)
        if (failure := self._logs.failure) is not None:
            self._node.reporter.report_disk_failure(str(failure))

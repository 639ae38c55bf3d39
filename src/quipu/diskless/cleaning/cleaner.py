"""`DisklessCleaner`: runs all passes of this node, each at its own interval.

A pass that fails, because the store or the control plane does, is logged and tried again later,
with a pause that doubles up to a limit.  Passes do not wait for each other, and nothing waits for
them.

Invariant
    diskless.cleaning.P1  no error of a pass ends the cleaner, or another pass
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from quipu.diskless.cleaning.deletion import Deletion
from quipu.diskless.cleaning.limits import CleaningLimits
from quipu.diskless.cleaning.orphans import Orphans
from quipu.diskless.cleaning.ownership import mark
from quipu.diskless.cleaning.receipts import Receipts
from quipu.diskless.cleaning.retention import Retention, Rules
from quipu.diskless.cleaning.rewriting import Rewriting
from quipu.diskless.cleaning.services import CleaningServices
from quipu.diskless.cleaning.shares import is_own, pause_seconds
from quipu.diskless.cleaning.stats import CleaningStats
from quipu.diskless.control_plane.interface import ControlPlane
from quipu.diskless.objects.names import ObjectName
from quipu.diskless.values import LogKey
from quipu.model.errors import QuipuError
from quipu.model.ids import NodeId
from quipu.runtime.clock import Clock
from quipu.runtime.log_limits import LimitedLog
from quipu.runtime.objects.store import ObjectStore
from quipu.runtime.rng import Rng
from quipu.runtime.spawn import spawn

SWEEPS_PER_GRACE: Final = 4  # listings of the whole store in the grace period of orphans
SWEEP_INTERVAL_MS_MAX: Final = 6 * 3_600_000
BACK_OFF_SECONDS_MIN: Final = 1.0
BACK_OFF_SECONDS_MAX: Final = 300.0

_log = logging.getLogger(__name__)


class _Pass(NamedTuple):
    """Something that is done again and again."""

    name: str
    run: Callable[[], Awaitable[None]]
    interval_ms: int
    is_shared: bool  # any one node may do it for all; else every node does its share


class DisklessCleaner:
    """The clean-up of diskless topics by one node; start `run`, and `stop` it in the end."""

    def __init__(
        self, store: ObjectStore, plane: ControlPlane, clock: Clock, rng: Rng, *,
        node_id: NodeId, live_nodes: Callable[[], Sequence[NodeId]], rules: Rules,
        limits: CleaningLimits, stats: CleaningStats | None = None,
    ) -> None:
        """Raises `BadCleaningLimits`.

        `rules` are those of all logs that this node knows, but for logs with a remote tier.
        """
        limits.check()
        self.stats = stats if stats is not None else CleaningStats()
        self._store = store
        self._plane = plane
        self._rng = rng
        self._node_id = node_id
        self._live_nodes = live_nodes
        self._limits = limits
        self._writer = rng.uuid()  # of the objects that the cleaner makes
        self._sequence = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._ended = asyncio.Event()
        self._limited = LimitedLog(_log, clock.monotonic)
        services = CleaningServices(
            store, plane, clock, self._new_name, limits, self.stats, self._limited)
        self.retention = Retention(services, rules, self._is_own)
        self.receipts = Receipts(services)
        self.deletion = Deletion(services, self.receipts.keep)
        self.orphans = Orphans(services, self.receipts.keep)
        self.rewriting = Rewriting(services)

    async def run(self) -> None:
        """Run all passes until `stop`."""
        self._tasks = [spawn(self._mark(), "diskless-mark")]
        self._tasks += [spawn(self._repeat(each), f"diskless-{each.name}")
                        for each in self._passes()]
        await self._ended.wait()

    async def stop(self) -> None:
        """End all passes; each step of theirs may be cut off."""
        self._ended.set()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _passes(self) -> list[_Pass]:
        limits = self._limits
        sweep_ms = min(limits.orphan_grace_ms // SWEEPS_PER_GRACE, SWEEP_INTERVAL_MS_MAX)
        passes = [
            _Pass("retention", self.retention.run, limits.retention_interval_ms, is_shared=False),
            _Pass("producers", self.retention.expire_producers, limits.cleaner_interval_ms,
                  is_shared=True),
            _Pass("deletion", self.deletion.run, limits.cleaner_interval_ms, is_shared=True),
            _Pass("orphans", self.orphans.run, sweep_ms, is_shared=True),
            _Pass("receipts", self.receipts.run, sweep_ms, is_shared=True)]
        if limits.is_rewriting:
            passes.append(_Pass("rewriting", self.rewriting.run, limits.cleaner_interval_ms,
                                is_shared=True))
        return passes

    async def _repeat(self, each: _Pass) -> None:
        while True:
            count = len(self._live_nodes()) if each.is_shared else 1
            await asyncio.sleep(pause_seconds(each.interval_ms, count, self._rng.random()))
            await self._persist(each)

    async def _persist(self, each: _Pass) -> None:
        """Run a pass until it ends without an error (diskless.cleaning.P1)."""
        back_off = BACK_OFF_SECONDS_MIN
        while True:
            try:
                await each.run()
            except QuipuError as error:
                self._limited.warning(each.name, "%s of diskless topics: %s; again in about %d s",
                                      each.name, error, back_off)
            except Exception:  # noqa: BLE001 a bug must not end the clean-up
                self._limited.exception(each.name, "%s of diskless topics failed; again in about "
                                        "%d s", each.name, back_off)
            else:
                self.stats.passes += 1
                return
            self.stats.failures += 1
            await asyncio.sleep(back_off * (0.5 + self._rng.random()))
            back_off = min(back_off * 2, BACK_OFF_SECONDS_MAX)

    async def _mark(self) -> None:
        """Leave the control plane's identity in the store, before anything is an orphan there."""
        await self._persist(_Pass("mark", lambda: mark(self._store, self._plane), 0,
                                  is_shared=False))

    def _is_own(self, log: LogKey) -> bool:
        return is_own(log, self._node_id, self._live_nodes())

    def _new_name(self) -> ObjectName:
        name = ObjectName(self._node_id, self._writer, self._sequence)
        self._sequence += 1
        return name

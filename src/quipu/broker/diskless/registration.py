"""Keeps the logs that the control plane knows in step with the topics of the cluster.

Every node makes sure that the control plane knows the logs of a topic before it writes to them;
which of the nodes is the first makes no difference.  The controller's node deletes the logs of
deleted topics: at once, and again after a crash, when it finds logs of no topic.

Invariants
    broker.diskless.L1  no batch reaches the writer before the control plane has confirmed its log
    broker.diskless.L2  a topic's logs are deleted only by the controller's node, after it has
                        confirmed that it is: because its own metadata says that the topic was
                        deleted, or because the topic is unknown to the metadata in two looks
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from quipu.diskless.control_plane.interface import ControlPlane
from quipu.diskless.values import Lineage, LogKey
from quipu.model.errors import QuipuError
from quipu.runtime.clock import Clock
from quipu.runtime.log_limits import LimitedLog

RETRY_SECONDS: Final = 0.25
RETRY_SECONDS_MAX: Final = 5.0
AT_ONCE: Final = 8  # topics that are created or deleted at the same time
SWEEP_SECONDS: Final = 300.0  # between two looks for logs of no topic

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """What registration needs to know about the cluster, when it is needed."""

    topics: Callable[[], AbstractSet[UUID]]  # the ids of all topics: others may become diskless
    is_controller: Callable[[], bool]
    confirm: Callable[[], Awaitable[object]]  # raises unless this node is still the controller


class LogRegistration:
    """The logs of one control plane, as one node wants them."""

    def __init__(
        self, plane: ControlPlane, view: ClusterView, clock: Clock, *,
        sweep_seconds: float = SWEEP_SECONDS,
    ) -> None:
        self._plane = plane
        self._view = view
        self._clock = clock
        self._sweep_seconds = sweep_seconds
        self._wanted: dict[UUID, tuple[str, int]] = {}
        self._adopted: set[UUID] = set()  # topics with logs that were on disks
        self._dead: dict[UUID, None] = {}  # to be deleted
        self._suspects: frozenset[UUID] = frozenset()  # of no topic at the last look
        self._changed = asyncio.Event()
        self._limited = LimitedLog(_log, clock.monotonic)
        self.on_known: Callable[[bytes, int], None] = lambda _topic_id, _count: None
        self.on_lineages: Callable[[bytes, Sequence[Lineage | None]], None] = (
            lambda _topic_id, _lineages: None)
        self.on_failed: Callable[[bytes, int, QuipuError], None] = lambda _id, _count, _error: None
        self.trouble: str | None = None  # why the control plane could not be asked the last time

    def want(self, topic_id: UUID, name: str, count: int, *, is_adopted: bool = False) -> None:
        """Make the control plane know so many logs of a topic, and then call `on_known`.

        If some of them were on disks, `on_lineages` is called before.
        """
        self._wanted[topic_id] = name, count
        if is_adopted:
            self._adopted.add(topic_id)
        self._changed.set()

    def deleted(self, topic_id: UUID) -> None:
        """Forget the topic, and have its logs deleted if this is the controller's node."""
        self._wanted.pop(topic_id, None)
        self._adopted.discard(topic_id)
        if self._view.is_controller():
            self._dead[topic_id] = None
            self._changed.set()

    async def run(self) -> None:
        """Register and delete until cancelled; the control plane is open."""
        await self._take_known()
        delay = RETRY_SECONDS
        swept = self._clock.monotonic()
        while True:
            if await self._step():
                delay = RETRY_SECONDS
            else:
                await asyncio.sleep(delay)
                delay = min(delay * 2, RETRY_SECONDS_MAX)
                continue
            if self._clock.monotonic() - swept >= self._sweep_seconds:
                swept = self._clock.monotonic()
                await self._sweep()
            try:
                async with asyncio.timeout(self._sweep_seconds):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _take_known(self) -> None:
        """Skip the logs that the control plane knows already, as at most starts."""
        try:
            known = await self._plane.topics()
        except QuipuError as error:
            self._note(error)
            return
        for topic_id, (_, count) in known.items():
            wanted = self._wanted.get(topic_id)
            if wanted is not None and wanted[1] <= count and topic_id not in self._adopted:
                del self._wanted[topic_id]
                self.on_known(topic_id.bytes, wanted[1])

    async def _step(self) -> bool:
        """Register and delete what is due; False if the control plane could not be asked."""
        self._changed.clear()
        done = True
        while self._wanted or self._dead:
            wanted = [(topic_id, *self._wanted[topic_id])
                      for topic_id in list(self._wanted)[:AT_ONCE]]
            dead = list(self._dead)[:AT_ONCE]
            results = await asyncio.gather(
                *(self._register(*each) for each in wanted), *map(self._delete, dead))
            done = all(results)
            if not done:
                break
        return done

    async def _register(self, topic_id: UUID, name: str, count: int) -> bool:
        try:
            await self._plane.create_logs(topic_id, name, count)
            if topic_id in self._adopted:
                self.on_lineages(topic_id.bytes, await self._plane.lineages(
                    [LogKey(topic_id, number) for number in range(count)]))
        except QuipuError as error:
            self._note(error)
            self.on_failed(topic_id.bytes, count, error)
            return False
        self.trouble = None
        if self._wanted.get(topic_id) == (name, count):
            del self._wanted[topic_id]
        self.on_known(topic_id.bytes, count)  # broker.diskless.L1
        return True

    async def _delete(self, topic_id: UUID) -> bool:
        try:
            await self._view.confirm()  # broker.diskless.L2
        except QuipuError:  # another node is the controller, and looks for logs of no topic
            self._dead.pop(topic_id, None)
            return True
        try:
            await self._plane.delete_topic(topic_id, self._clock.now_ms())
        except QuipuError as error:
            self._note(error)
            return False
        self.trouble = None
        self._dead.pop(topic_id, None)
        return True

    async def _sweep(self) -> None:
        """Find logs of no topic, if this is the controller's node (broker.diskless.L2)."""
        if not self._view.is_controller():
            self._suspects = frozenset()
            return
        try:
            known = frozenset(await self._plane.topics())
            await self._view.confirm()
        except QuipuError as error:
            self._note(error)
            return
        suspects = known - self._view.topics()
        for topic_id in sorted(suspects & self._suspects):
            _log.warning("the control plane has logs of topic id %s, which does not exist: they "
                         "are deleted", topic_id)
            self._dead[topic_id] = None
            self._changed.set()
        self._suspects = suspects - self._dead.keys()

    def _note(self, error: QuipuError) -> None:
        self.trouble = str(error)
        self._limited.warning("plane", "the control plane of diskless topics cannot be asked, so "
                              "it will be tried again: %s", error)

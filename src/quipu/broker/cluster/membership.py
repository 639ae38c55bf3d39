"""This node's life in the cluster: it registers, is heard of, serves while it may, and leaves.

Invariants
    B1  the lease ends before the controller may take this node for dead: it counts from when the
        last answered heartbeat was sent, and is shorter than the session and than the lease that
        this process was registered with
    B2  a lease is taken only with the metadata that the answering controller had: a node that was
        away does not act on what it knew before
    B3  a node that is fenced, or leaves, has no lease
    B4  a node whose disk has failed as a whole asks to be taken off its chain, until it is
        restarted.  The controller does so where others serve
    B5  every heartbeat names all partitions whose log has failed here; the controller takes this
        node off those alone (controller/detached).  If they are too many to name, B4 holds

Not here: the controller's side (liveness.py), what a lease is needed for (broker/lease).
"""

import asyncio
import logging
from collections.abc import Callable
from itertools import islice
from typing import Final, NamedTuple
from uuid import UUID

from quipu.broker.cluster.link import ControllerLink
from quipu.broker.cluster.reports import Key, Reports
from quipu.broker.cluster.requests import (
    BrokerHeartbeat,
    BrokerHeartbeatAnswer,
    BrokerRegistration,
    FailedPartition,
    LeaveCluster,
    LeaveClusterAnswer,
    RegisterBroker,
)
from quipu.controller.state import ClusterState
from quipu.model.errors import Code, QuipuError
from quipu.model.ids import ZERO_UUID
from quipu.model.settings import BrokerSettings
from quipu.runtime.clock import Clock
from quipu.runtime.spawn import spawn

_log = logging.getLogger(__name__)

ENDLESS: Final = float("inf")
OVER: Final = float("-inf")
LEASE_RATIO: Final = 0.9  # of what is allowed; the rest is for clocks of other speeds (B1)
PAUSE_SECONDS_MIN: Final = 0.02  # between two heartbeats, however much there is to tell
REFUSED_PAUSE_SECONDS: Final = 0.2
TROUBLE_SIZE_MAX: Final = 1000  # characters
FAILED_MAX: Final = 1000  # logs: with more of them it is not the logs that have failed
REGISTER_SECONDS: Final = 5.0  # for one attempt
HOPELESS_PAUSE_SECONDS: Final = 0.05  # between two looks at whether there can be a controller
HOPELESS_MAX: Final = 5  # looks without hope until this node stops on its own
REFUSED_SESSIONS_MAX: Final = 3  # that a process before this one may linger


class Endpoints(NamedTuple):
    """Where this node is reached: by clients, and by other nodes."""

    host: str
    port: int
    peer_host: str = ""
    peer_port: int = 0


# Called before a heartbeat is sent; what it gives is called when the metadata of a moment after
# that has come here, and this node is counted on.
Reader = Callable[[], Callable[[], None]]


class Membership:
    """One process's membership."""

    def __init__(
        self,
        settings: BrokerSettings,
        incarnation: UUID,
        link: ControllerLink,
        clock: Clock,
        *,
        state: Callable[[], ClusterState],
        directory_id: UUID = ZERO_UUID,
    ) -> None:
        self.incarnation = incarnation
        self._directory_id = directory_id
        self.broker_epoch = -1
        self.lease_until = OVER  # in the clock's monotonic seconds
        self.in_touch_until = OVER  # the same: others know better than this node from then on
        self.is_fenced = True
        self.trouble = ""  # B4: the first
        self.reports = Reports(settings.own_id)
        self.readers: list[Reader] = []
        self.failed: dict[Key, str] = {}  # B5: and why
        self._settings = settings
        self._link = link
        self._clock = clock
        self._state = state
        self._endpoints = Endpoints("", 0)
        self._is_ready = False
        self._is_leaving = False
        self._wake = asyncio.Event()
        self._beating: asyncio.Task[None] | None = None
        self._unfenced = asyncio.Event()

    async def join(self, endpoints: Endpoints) -> None:
        """Register, and be heard of from now on; returns when the metadata has come here.

        Waits for a controller for as long as it takes.  Raises if this node cannot be taken.
        """
        self._endpoints = endpoints
        await self._register()
        self._beating = spawn(self._beat_on(), "heartbeats")

    async def serve(self) -> None:
        """Ask to be counted on; returns when this node is, or cannot be as long as it runs."""
        self._is_ready = True
        self._wake.set()
        await self._unfenced.wait()

    def tell_soon(self) -> None:
        """Have the next heartbeat sent without delay."""
        self._wake.set()

    def step_back(self, trouble: str) -> None:
        """Ask that others serve in this node's place (B4)."""
        if not self.trouble:
            _log.error("this node steps back, if others serve in its place, until it is restarted: "
                       "%s", trouble)
            self.trouble = trouble
            self._wake.set()

    def fail_partition(self, key: Key, why: str) -> None:
        """Have others serve a partition whose log has failed here (B5)."""
        is_new = key not in self.failed
        self.failed[key] = why
        if len(self.failed) > FAILED_MAX:
            self.step_back(f"{len(self.failed)} logs have failed: {why}")
        elif is_new:
            self._wake.set()

    def mend_partition(self, key: Key) -> None:
        """Its log is open again."""
        if self.failed.pop(key, None) is not None:
            self._wake.set()

    async def leave(self) -> None:
        """Let others take this node's parts before it stops; a best effort within its time.

        Where too few nodes are left to have a controller, there is nobody to wait for.
        """
        self.give_up_lease()
        timeout_ms = self._settings.controlled_shutdown_timeout_ms
        if not self._settings.controlled_shutdown_enable or timeout_ms == 0:
            return
        asking = spawn(self._ask_leave(timeout_ms / 1000), "leave")
        hopeless = 0
        while not asking.done() and hopeless < HOPELESS_MAX:
            await asyncio.wait([asking], timeout=HOPELESS_PAUSE_SECONDS)
            hopeless = hopeless + 1 if self._link.is_hopeless else 0
        if asking.cancel():
            _log.warning("stopping without the controller's leave: too few nodes are left for one")

    async def _ask_leave(self, timeout_seconds: float) -> None:
        request = LeaveCluster(node_id=self._settings.own_id, broker_epoch=self.broker_epoch,
                               incarnation=self.incarnation)
        try:
            await self._link.ask(request, LeaveClusterAnswer, timeout_seconds=timeout_seconds)
        except QuipuError as error:
            _log.warning("stopping without the controller's leave: %s", error)

    def give_up_lease(self) -> None:
        """B3: from now on this node speaks for nobody."""
        self._is_leaving = True
        self.lease_until = self.in_touch_until = OVER

    def stop(self) -> None:
        """Be silent."""
        self.give_up_lease()
        if self._beating is not None:
            self._beating.cancel()
            self._beating = None

    # -- registration

    async def _register(self) -> None:
        patience = REFUSED_SESSIONS_MAX * self._settings.broker_session_timeout_ms / 1000
        refused_since: float | None = None
        told = False
        while True:
            try:
                answer = await self._link.ask(
                    self._registration(), BrokerRegistration, timeout_seconds=REGISTER_SECONDS)
            except QuipuError as error:
                now = self._clock.monotonic()
                if error.code is Code.REQUEST_TIMED_OUT:
                    refused_since = None
                elif error.code is not Code.DUPLICATE_BROKER_REGISTRATION:
                    raise
                elif refused_since is None:
                    refused_since = now
                elif now - refused_since > patience:
                    raise  # it lives: two nodes have been given one number
                if not told:
                    _log.warning("waiting to be registered: %s", error)
                told = True
                await asyncio.sleep(REFUSED_PAUSE_SECONDS)
            else:
                self.broker_epoch = answer.broker_epoch
                return

    def _registration(self) -> RegisterBroker:
        host, port, peer_host, peer_port = self._endpoints
        return RegisterBroker(
            node_id=self._settings.own_id, name=self._settings.node_name, host=host, port=port,
            rack=self._settings.broker_rack, peer_host=peer_host, peer_port=peer_port,
            incarnation=self.incarnation, lease_ms=self._settings.broker_lease_ms,
            directory_id=self._directory_id)

    # -- heartbeats

    async def _beat_on(self) -> None:
        interval = self._settings.broker_heartbeat_interval_ms / 1000
        while True:
            try:
                await self._beat()
            except QuipuError as error:
                await self._mend(error)
            except Exception:  # noqa: BLE001 a node that falls silent is lost, whatever the bug
                _log.exception("a heartbeat failed")
            await asyncio.sleep(min(PAUSE_SECONDS_MIN, interval))
            try:
                async with asyncio.timeout(interval):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()

    async def _beat(self) -> None:
        state, sent = self._state(), self._clock.monotonic()
        confirmed = [begin() for begin in self.readers]
        request = BrokerHeartbeat(
            node_id=self._settings.own_id, broker_epoch=self.broker_epoch,
            incarnation=self.incarnation, is_ready=self._is_ready and not self._is_leaving,
            trouble=self.trouble[:TROUBLE_SIZE_MAX],
            failed_partitions=[FailedPartition(topic_id=topic_id, partition=partition)
                               for topic_id, partition in islice(self.failed, FAILED_MAX)],
            caught_up_chains=self.reports.caught_up_chains(state),
            caught_up_partitions=self.reports.caught_up_partitions(state))
        answer = await self._link.ask(  # B2: it waits for the metadata
            request, BrokerHeartbeatAnswer,
            timeout_seconds=self._settings.broker_session_timeout_ms / 2000)
        self.is_fenced = answer.is_fenced
        if answer.is_fenced or self._is_leaving:
            self.lease_until = self.in_touch_until = OVER  # B3
            if request.is_ready and request.trouble:
                self._unfenced.set()  # it will not be: there is nothing to wait for (B4)
        else:
            lease_ms = min(self._settings.broker_lease_ms, answer.session_ms)
            self.lease_until = sent + LEASE_RATIO * lease_ms / 1000  # B1
            self.in_touch_until = sent + LEASE_RATIO * answer.session_ms / 1000
            self._unfenced.set()
            for finish in confirmed:
                finish()

    async def _mend(self, error: QuipuError) -> None:
        """A heartbeat that was refused, or not answered."""
        if error.code in (Code.BROKER_ID_NOT_REGISTERED, Code.STALE_BROKER_EPOCH):
            self.lease_until = self.in_touch_until = OVER
            _log.warning("the controller does not know this process any more: %s", error)
            try:
                await self._register()
            except QuipuError as refusal:
                _log.error("this node cannot be registered again: %s", refusal)
        elif self._clock.monotonic() > self.lease_until:
            _log.warning("the controller is not heard of: %s", error)

"""This node's membership in the cluster: registration, heartbeats, lease, controlled shutdown.

Invariants
    broker.cluster.B1  the lease ends before the controller may fence this node: it begins when the
                       last heartbeat with a response was sent, and is shorter than the session and
                       than the lease that this process was registered with
    broker.cluster.B2  a lease begins only after this node has applied the metadata that the
                       controller had when it responded: a node that was disconnected does not act
                       on outdated metadata
    broker.cluster.B3  a node that is fenced, or leaves, has no lease
    broker.cluster.B4  a node whose disk has failed as a whole asks to be fenced until it is
                       restarted.  The controller does that if other nodes serve its partitions
    broker.cluster.B5  every heartbeat names all partitions whose log has failed here; the
                       controller removes this node from those alone
                       (controller/failed_replicas.py).  If there are too many to name,
                       broker.cluster.B4 applies
    broker.cluster.B6  in a cluster of one node the lease is endless: no other node could lead

Not here: the controller's side (liveness.py), what a lease is needed for (partitions/lease.py).
"""

import asyncio
import logging
from collections.abc import Callable
from itertools import islice
from typing import Final, NamedTuple
from uuid import UUID

from quipu.broker.cluster.caught_up import CaughtUpReports, Key
from quipu.broker.cluster.controller_channel import ControllerChannel
from quipu.broker.cluster.migrations import MigrationReports
from quipu.broker.cluster.requests import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerListener,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    FailedPartition,
)
from quipu.broker.error_codes import code_of
from quipu.controller.records import METADATA_LEVEL
from quipu.controller.state import ClusterState
from quipu.model.errors import Code, QuipuError
from quipu.model.ids import ZERO_UUID
from quipu.model.listeners import ListenerEndpoint
from quipu.model.settings import BrokerSettings
from quipu.runtime.clock import Clock
from quipu.runtime.spawn import spawn

_log = logging.getLogger(__name__)

ENDLESS: Final = float("inf")
OVER: Final = float("-inf")
LEASE_RATIO: Final = 0.9  # of what is allowed: clocks differ (broker.cluster.B1)
PAUSE_SECONDS_MIN: Final = 0.02  # between two heartbeats, however much there is to report
REFUSED_PAUSE_SECONDS: Final = 0.2
TROUBLE_SIZE_MAX: Final = 1000  # characters
FAILED_MAX: Final = 1000  # logs; if more have failed, the disk has
REGISTER_SECONDS: Final = 5.0  # for one attempt
HOPELESS_PAUSE_SECONDS: Final = 0.05  # between two checks whether a controller can be elected
HOPELESS_MAX: Final = 5  # failed checks after which this node stops without a controller
REFUSED_SESSIONS_MAX: Final = 3  # for which an earlier process of this node may still be registered


class Endpoints(NamedTuple):
    """The addresses of this node, for clients and for other nodes."""

    host: str
    port: int
    peer_host: str = ""
    peer_port: int = 0
    listeners: tuple[ListenerEndpoint, ...] = ()  # none: PLAINTEXT alone, at host:port


# Called before a heartbeat is sent.  The function that it returns is called when this node has
# applied metadata of a later moment, if this node is not fenced.
Reader = Callable[[], Callable[[], None]]


class Membership:
    """The membership of one process of this node."""

    def __init__(
        self,
        settings: BrokerSettings,
        incarnation: UUID,
        channel: ControllerChannel,
        clock: Clock,
        *,
        state: Callable[[], ClusterState],
        directory_id: UUID = ZERO_UUID,
        is_alone: bool = False,
    ) -> None:
        """`is_alone`: a cluster of one node (broker.cluster.B6).

        Such a node sends a heartbeat only if it has something to report.
        """
        self._is_alone = is_alone
        self.incarnation = incarnation
        self._directory_id = directory_id
        self.broker_epoch = -1
        self.lease_until = ENDLESS if is_alone else OVER  # in the clock's monotonic seconds
        self.in_touch_until = OVER  # then other nodes have newer metadata
        self.is_fenced = True
        self.trouble = ""  # broker.cluster.B4: the first failure
        self.reports = CaughtUpReports(settings.own_id)
        self.migrations = MigrationReports()
        self.readers: list[Reader] = []
        self.failed: dict[Key, str] = {}  # broker.cluster.B5: with the errors
        self._settings = settings
        self._channel = channel
        self._clock = clock
        self._state = state
        self._endpoints = Endpoints("", 0)
        self._is_ready = is_alone
        self._is_leaving = False
        self._wake = asyncio.Event()
        self._beating: asyncio.Task[None] | None = None
        self._unfenced = asyncio.Event()

    async def join(self, endpoints: Endpoints) -> None:
        """Register, and send heartbeats from now on; returns when the metadata is applied here.

        Waits for a controller without a limit.  Raises if the registration is refused.
        """
        self._endpoints = endpoints
        await self._register()
        self._beating = spawn(self._beat_on(), "heartbeats")

    async def serve(self) -> None:
        """Ask to be unfenced; returns when this node is, or must stay fenced."""
        self._is_ready = True
        self._wake.set()
        await self._unfenced.wait()

    def heartbeat_soon(self) -> None:
        """Send the next heartbeat without delay."""
        self._wake.set()

    def step_back(self, trouble: str) -> None:
        """Ask to be fenced, so that other nodes serve instead (broker.cluster.B4)."""
        if not self.trouble:
            _log.error("this node asks to be fenced until it is restarted, if other nodes can "
                       "serve instead: %s", trouble)
            self.trouble = trouble
            self._wake.set()

    def fail_partition(self, key: Key, why: str) -> None:
        """Report a partition whose log has failed here (broker.cluster.B5)."""
        is_new = key not in self.failed
        self.failed[key] = why
        if len(self.failed) > FAILED_MAX:
            self.step_back(f"{len(self.failed)} logs have failed: {why}")
        elif is_new:
            self._wake.set()

    def mend_partition(self, key: Key) -> None:
        """Report that the log of a partition is open again."""
        if self.failed.pop(key, None) is not None:
            self._wake.set()

    async def leave(self) -> None:
        """Let the controller move this node's roles to other nodes before it stops.

        If too few voters are left to elect a controller, it does not wait.
        """
        self.give_up_lease()
        timeout_ms = self._settings.controlled_shutdown_timeout_ms
        if not self._settings.controlled_shutdown_enable or timeout_ms == 0:
            return
        asking = spawn(self._ask_leave(timeout_ms / 1000), "leave")
        hopeless = 0
        while not asking.done() and hopeless < HOPELESS_MAX:
            await asyncio.wait([asking], timeout=HOPELESS_PAUSE_SECONDS)
            hopeless = hopeless + 1 if self._channel.is_hopeless else 0
        if asking.cancel():
            _log.warning("stopping without the controller: too few nodes are left to elect one")

    async def _ask_leave(self, timeout_seconds: float) -> None:
        request = ControlledShutdownRequest(
            node_id=self._settings.own_id, broker_epoch=self.broker_epoch,
            incarnation=self.incarnation)
        try:
            await self._channel.ask(
                request, ControlledShutdownResponse, timeout_seconds=timeout_seconds)
        except QuipuError as error:
            _log.warning("stopping, although the controller did not move this node's roles: %s",
                         error)

    def give_up_lease(self) -> None:
        """Lead nothing from now on (broker.cluster.B3)."""
        self._is_leaving = True
        self.lease_until = self.in_touch_until = OVER

    def stop(self) -> None:
        """Send no more heartbeats."""
        self.give_up_lease()
        if self._beating is not None:
            self._beating.cancel()
            self._beating = None

    # -- registration

    async def _register(self) -> None:
        patience = REFUSED_SESSIONS_MAX * self._settings.broker_session_timeout_ms / 1000
        refused_since: float | None = None
        warned = False
        while True:
            try:
                response = await self._channel.ask(
                    self._registration(), BrokerRegistrationResponse,
                    timeout_seconds=REGISTER_SECONDS)
            except QuipuError as error:
                now = self._clock.monotonic()
                if code_of(error) is Code.REQUEST_TIMED_OUT:
                    refused_since = None
                elif code_of(error) is not Code.DUPLICATE_BROKER_REGISTRATION:
                    raise
                elif refused_since is None:
                    refused_since = now
                elif now - refused_since > patience:
                    raise  # the other process is alive: two nodes have the same id
                if not warned:
                    _log.warning("waiting to be registered: %s", error)
                warned = True
                await asyncio.sleep(REFUSED_PAUSE_SECONDS)
            else:
                self.broker_epoch = response.broker_epoch
                return

    def _registration(self) -> BrokerRegistrationRequest:
        host, port, peer_host, peer_port, listeners = self._endpoints
        return BrokerRegistrationRequest(
            node_id=self._settings.own_id, name=self._settings.node_name, host=host, port=port,
            rack=self._settings.broker_rack, peer_host=peer_host, peer_port=peer_port,
            incarnation=self.incarnation, lease_ms=self._settings.broker_lease_ms,
            directory_id=self._directory_id, metadata_level=METADATA_LEVEL,
            listeners=[BrokerListener(name=each.listener, host=each.host, port=each.port)
                       for each in listeners])

    # -- heartbeats

    async def _beat_on(self) -> None:
        interval = self._settings.broker_heartbeat_interval_ms / 1000
        while True:
            if self._is_alone:
                await self._wake.wait()
                self._wake.clear()
            try:
                await self._beat()
            except QuipuError as error:
                await self._recover(error)
            except Exception:  # noqa: BLE001 without heartbeats the node would be fenced
                _log.exception("a heartbeat failed")
            await asyncio.sleep(min(PAUSE_SECONDS_MIN, interval))
            if not self._is_alone:
                try:
                    async with asyncio.timeout(interval):
                        await self._wake.wait()
                except TimeoutError:
                    pass
                self._wake.clear()

    async def _beat(self) -> None:
        state, sent = self._state(), self._clock.monotonic()
        confirmed = [begin() for begin in self.readers]
        request = BrokerHeartbeatRequest(
            node_id=self._settings.own_id, broker_epoch=self.broker_epoch,
            incarnation=self.incarnation, is_ready=self._is_ready and not self._is_leaving,
            trouble=self.trouble[:TROUBLE_SIZE_MAX],
            failed_partitions=[FailedPartition(topic_id=topic_id, partition=partition)
                               for topic_id, partition in islice(self.failed, FAILED_MAX)],
            caught_up_chains=self.reports.caught_up_chains(state),
            caught_up_partitions=self.reports.caught_up_partitions(state),
            migrating=self.migrations.reports(), metadata_level=METADATA_LEVEL)
        response = await self._channel.ask(  # broker.cluster.B2: `ask` waits for the metadata
            request, BrokerHeartbeatResponse,
            timeout_seconds=self._settings.broker_session_timeout_ms / 2000)
        self.is_fenced = response.is_fenced
        if self._is_alone:
            return  # broker.cluster.B6
        if response.is_fenced or self._is_leaving:
            self.lease_until = self.in_touch_until = OVER  # broker.cluster.B3
            if request.is_ready and request.trouble:
                self._unfenced.set()  # broker.cluster.B4: it stays fenced, so `serve` returns
        else:
            lease_ms = min(self._settings.broker_lease_ms, response.session_ms)
            self.lease_until = sent + LEASE_RATIO * lease_ms / 1000  # broker.cluster.B1
            self.in_touch_until = sent + LEASE_RATIO * response.session_ms / 1000
            self._unfenced.set()
            for finish in confirmed:
                finish()

    async def _recover(self, error: QuipuError) -> None:
        """Register again if a heartbeat was refused; log if it had no response."""
        if code_of(error) in (Code.BROKER_ID_NOT_REGISTERED, Code.STALE_BROKER_EPOCH):
            self.lease_until = self.in_touch_until = OVER
            _log.warning("the controller does not know this process any more: %s", error)
            try:
                await self._register()
            except QuipuError as refusal:
                _log.error("this node cannot be registered again: %s", refusal)
        elif self._clock.monotonic() > self.lease_until:
            _log.warning("the controller does not respond to heartbeats: %s", error)

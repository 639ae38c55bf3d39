"""The controller's liveness checks: registers brokers, and fences those without heartbeats.

A *term* of the controller lasts from when this node becomes the controller until it is not.

Invariants
    broker.cluster.L1  a broker is fenced only if it has sent no heartbeat for the session timeout;
                       or if its process has closed its connection and sent none for as long as its
                       lease; or if it asks for it (it stops, or its disk has failed).  A broker
                       whose heartbeat comes while it is being fenced learns that from the response
    broker.cluster.L2  at the begin of a term, the last heartbeat of every broker counts as received
                       at a moment when an earlier controller may still have responded to it, so
                       that every lease that was granted has time to end.  That moment is now,
                       except for the previous leader, whose silence is the reason of the election:
                       for it, it is the last moment at which a voter of this term can have followed
                       an earlier leader (see below).  Unless the previous leader has closed its
                       connection, it still has a part of a session to send a heartbeat
    broker.cluster.L3  the response to a heartbeat is sent by a node that certainly was the
                       controller when the heartbeat came (broker.cluster.M4); so, by
                       broker.cluster.L1 and broker.cluster.L2, the broker's lease is valid
    broker.cluster.L4  a chain whose nodes were all down waits for the last of them no longer than
                       chain.cold.start.wait.ms
    broker.cluster.L5  brokers whose heartbeats stopped together are fenced together, so that a
                       chain keeps all members that served to the end: each of them may be the one
                       whose disk has kept most records.  A broker without a heartbeat in this term
                       may have failed together with the previous leader, so they wait for each
                       other

Why the previous leader's silence may be counted from before this term.  A lease begins when a
heartbeat is sent.  Its response needs a majority of the voters that received a message of the
controller after the heartbeat came: in a round of Raft's heartbeats, or with the entry of the
decision (broker.cluster.M4, broker.cluster.L3).  One voter of that majority has voted for this
node, and after its vote it follows no earlier leader; so the heartbeat was sent before the last
moment at which any of this node's voters followed one (raft.E4: each says with its vote how long
ago that was at least).  After a transfer of leadership that moment is now, and no silence is
counted; after a restart of a voter it is the restart.

Why a broker that has closed its connection may be fenced before its session is over.  A closed
connection is no proof: the process may be alive, and the network may have closed it.  So it is only
a reason to check the lease.  A lease is no longer than the broker said when it registered (which is
stored with the registration, so that every controller knows), and begins when a heartbeat is sent
that gets a response; that is before the heartbeat was received here (or, in an earlier term, before
the moment of broker.cluster.L2).  After that time the broker has no lease by its own clock
(broker.cluster.B1), exactly as after a session timeout.  If it is alive, it connects again and its
heartbeat is received before that.

Not here: what fencing does to chains (controller/brokers.py, controller/chains.py), the broker's
side (membership.py).
"""

import asyncio
import base64
import logging
from collections.abc import Callable
from typing import Final
from uuid import UUID

from quipu.broker.cluster.caught_up import CaughtUpTally
from quipu.broker.cluster.decision_queue import DecisionQueue
from quipu.broker.cluster.migrations import MigrationTally
from quipu.broker.cluster.requests import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    CaughtUpChain,
    CaughtUpPartition,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from quipu.broker.cluster.state_machine import MetadataStateMachine
from quipu.broker.error_codes import code_of
from quipu.broker.quorum.contract import PreviousLeader
from quipu.controller import brokers, chains, failed_replicas, migration, reassignment
from quipu.controller.decision import Decision
from quipu.controller.members import BrokerState, Chain
from quipu.controller.records import ClusterCreated
from quipu.controller.state import ClusterState
from quipu.model.chains import member_key
from quipu.model.errors import Code, ErrorKind, QuipuError, RequestError
from quipu.model.ids import ZERO_UUID, NodeId
from quipu.model.listeners import ListenerEndpoint
from quipu.runtime.clock import Clock
from quipu.runtime.rng import Rng
from quipu.runtime.spawn import spawn

_log = logging.getLogger(__name__)

SWEEPS_PER_LEASE: Final = 10
SWEEP_SECONDS_MAX: Final = 0.5
GRACE_RATIO: Final = 1 / 3  # of a session that the previous leader has for a heartbeat, at least


HasHungUp = Callable[[NodeId, UUID], bool]  # node, incarnation: see `PeerNet.has_hung_up`


class Liveness:
    """Which brokers are alive.  Works while this node is the controller."""

    def __init__(
        self, node_id: NodeId, machine: MetadataStateMachine, decisions: DecisionQueue,
        clock: Clock, rng: Rng, *, has_hung_up: HasHungUp | None,
    ) -> None:
        """`has_hung_up` is None in a cluster of one node."""
        self._node_id = node_id
        self._machine = machine
        self._decisions = decisions
        self._clock = clock
        self._rng = rng
        self._has_hung_up = has_hung_up
        self._is_alone = has_hung_up is None
        self._heard: dict[NodeId, float] = {}
        self._leased: dict[NodeId, float] = {}  # when their newest lease began, at the latest
        self._met: set[NodeId] = set()  # sent a heartbeat in this term (broker.cluster.L2)
        self._cold_since: dict[str, float] = {}
        self._tally = CaughtUpTally()
        self.migrations = MigrationTally()
        self._sweeping: asyncio.Task[None] | None = None

    # -- the term

    def begin(self, predecessor: PreviousLeader | None = None) -> None:
        """Begin a term: this node is the controller, and `predecessor` is not any more."""
        now = self._clock.monotonic()
        self._heard = dict.fromkeys(self._state.brokers, now)  # broker.cluster.L2
        self._leased = dict(self._heard)
        if predecessor is not None and predecessor.node_id in self._heard:
            self._leased[predecessor.node_id] = min(now, predecessor.led_until)
            lately = now - (1 - GRACE_RATIO) * self._session_ms / 1000
            self._heard[predecessor.node_id] = min(now, max(predecessor.led_until, lately))
        self._met.clear()
        self._cold_since.clear()
        self._tally = CaughtUpTally()
        self.end()
        self._sweeping = spawn(self._sweep_on(), "liveness of brokers")

    def end(self) -> None:
        """End the term; safe to call at any time."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None

    async def _sweep_on(self) -> None:
        while True:
            await asyncio.sleep(self._sweep_seconds)
            try:
                await self.sweep()
            except QuipuError as error:
                if code_of(error) is not Code.NOT_CONTROLLER:  # else `end` is about to be called
                    _log.warning("the controller could not check which brokers live: %s", error)
            except Exception:  # noqa: BLE001 only this task checks brokers
                _log.exception("the controller could not check which brokers live")

    async def sweep(self) -> None:
        """Fence brokers without heartbeats, and reconcile all chains."""
        self._note_cold()
        silent = self._silent()
        if silent and (self._is_any_about_to_be_silent() or self._is_any_unheard()):
            return  # broker.cluster.L5
        for node_id in silent:
            silence_ms = self._silence(node_id)
            hung_up = "closed its connection and " if silence_ms <= self._session_ms else ""
            _log.warning("node %d is fenced: it has %ssent no heartbeat for %d ms", node_id,
                         hung_up, silence_ms)
        if silent or chains.reconcile(self._state, self._waited()).records:
            await self._decisions.run(
                lambda: brokers.fence(self._state, self._silent(), self._waited(),
                                      now_ms=self._clock.now_ms()), confirm=False)

    # -- requests of brokers

    async def register(
        self, sender: NodeId, request: BrokerRegistrationRequest
    ) -> BrokerRegistrationResponse:
        """Register a broker that has started."""
        node_id = NodeId(request.node_id)
        wanted = brokers.Registration(
            node_id=node_id, name=request.name, incarnation=request.incarnation,
            host=request.host, port=request.port, rack=request.rack,
            peer_host=request.peer_host, peer_port=request.peer_port, lease_ms=request.lease_ms,
            directory_id=request.directory_id, metadata_level=request.metadata_level,
            listeners=tuple(
                ListenerEndpoint(each.name, each.host, each.port) for each in request.listeners))

        def decide() -> Decision[BrokerState]:
            decision = self._registration(sender, wanted)
            self._hear(node_id)
            if not self._state.cluster_id:
                decision.records.insert(0, ClusterCreated(cluster_id=new_cluster_id(self._rng)))
            return decision

        known = self._state.brokers.get(node_id)
        (broker,) = await self._decisions.run(decide)
        if known is not None and ZERO_UUID not in (known.directory_id, broker.directory_id) and (
                known.directory_id != broker.directory_id):
            _log.warning(
                "node %d has another data directory (%s) than before (%s): it serves in its chain "
                "only after it has all records from other nodes; if there are none, restore the "
                "directory, or hold an unclean election", node_id, broker.directory_id,
                known.directory_id)
        if not broker.fenced:
            await self._bootstrap_chain(node_id)
        _log.info("node %d is registered", node_id, extra={
            "node": broker.name, "address": f"{broker.host}:{broker.port}"})
        return BrokerRegistrationResponse(broker_epoch=broker.epoch)

    def _registration(
        self, sender: NodeId, wanted: brokers.Registration
    ) -> Decision[BrokerState]:
        if self._is_alone:
            return brokers.register_alone(self._state, wanted)
        try:
            return brokers.register(
                self._state, wanted, quiet=self._is_gone(sender, wanted.node_id),
                now_ms=self._clock.now_ms())
        except RequestError as error:
            if (code_of(error) is Code.DUPLICATE_BROKER_REGISTRATION
                    and self._state.brokers.keys() - self._met >= {wanted.node_id}):
                raise RequestError(
                    f"whether the process that was node {wanted.node_id} is gone will be known "
                    f"within {self._session_ms} ms", code=Code.REQUEST_TIMED_OUT,
                    kind=ErrorKind.RETRY) from None
            raise

    async def heartbeat(
        self, sender: NodeId, request: BrokerHeartbeatRequest
    ) -> BrokerHeartbeatResponse:
        """Note that a broker is alive, and act on its reports (broker.cluster.L3)."""
        node_id = NodeId(request.node_id)

        def decide() -> Decision[BrokerState]:
            broker = brokers.current(self._state, node_id, request.broker_epoch)
            self._hear(node_id)
            if not request.is_ready:
                return Decision([], [broker])
            if request.trouble:
                return self._step_back(node_id, request)
            return brokers.unfence(
                self._state, node_id, request.broker_epoch, self._waited())

        (broker,) = await self._decisions.run(decide)
        if request.metadata_level > broker.metadata_level:
            await self._decisions.run(lambda: brokers.upgrade(
                self._state, node_id, request.broker_epoch, request.metadata_level), confirm=False)
        if not broker.fenced:
            await self._bootstrap_chain(node_id)
            await self._report_failures(node_id, request)
        for report in request.caught_up_chains:
            chain = self._state.chains.get(report.chain)
            if chain is not None and chain.find(sender) is not None:  # the sender is a member
                await self._promote(report)
        for caught_up in request.caught_up_partitions:
            await self._promote_in(sender, caught_up)
        arrived = self._tally.add(self._state, request.caught_up_partitions, sender)
        if arrived:
            await self._decisions.run(
                lambda: reassignment.advance(self._state, arrived), confirm=False)
        if request.migrating:
            await self._migrate(sender, request)
        return BrokerHeartbeatResponse(is_fenced=broker.fenced, session_ms=self._session_ms)

    async def _migrate(self, sender: NodeId, request: BrokerHeartbeatRequest) -> None:
        """Switch topics whose partitions are all ready to become diskless."""
        if self.migrations.add(self._state, request.migrating, sender) and (
                migration.switch(self._state, self.migrations.ready()).records):
            await self._decisions.run(
                lambda: migration.switch(self._state, self.migrations.ready()), confirm=False)

    async def _bootstrap_chain(self, node_id: NodeId) -> None:
        """Create the chain of a single node without voters, if it has none yet.

        If other nodes may join, it is created only while there is no other chain.  Nodes that are
        configured as Kafka's become a chain when all voters are up and there is none (ADR 54).
        """
        settings, state = self._machine.settings, self._state
        has_chains = bool(state.chain_index.operators())
        if settings.process_roles and settings.controller_quorum_voters and not has_chains:
            await self._bootstrap_voters()
        elif (node_id == self._node_id and not settings.controller_quorum_voters
                and state.chain_of(node_id) is None and (self._is_alone or not has_chains)):
            await self._decisions.run(
                lambda: chains.bootstrap_alone(self._state, node_id, settings.chain_name))

    async def _bootstrap_voters(self) -> None:
        """Create the chain of all voters, unless one of them is not up yet."""
        settings = self._machine.settings
        voters = {voter.node_id for voter in settings.controller_quorum_voters}
        up = [broker for broker in self._state.brokers.values()
              if broker.node_id in voters and not broker.fenced
              and member_key(broker.name)[0] == settings.chain_name]
        if len(up) < len(voters):
            return

        def decide() -> Decision[Chain]:
            if self._state.chain_index.operators():
                return Decision([], [])
            return chains.create(self._state, settings.chain_name, [each.name for each in up])

        if await self._decisions.run(decide):
            _log.info("the voters are a chain", extra={"chain": settings.chain_name})

    async def _report_failures(self, node_id: NodeId, request: BrokerHeartbeatRequest) -> None:
        """Remove a node from exactly those partitions whose log has failed there."""
        failed = {(each.topic_id, each.partition) for each in request.failed_partitions}
        if not failed and not self._state.detached_partitions():
            return

        def decide() -> Decision[None]:
            brokers.current(self._state, node_id, request.broker_epoch)
            return failed_replicas.report(self._state, node_id, failed)

        if decide().records:
            await self._decisions.run(decide, confirm=False)
            _log.warning("node %d: the logs of %d partitions have failed", node_id, len(failed))

    async def _promote_in(self, sender: NodeId, report: CaughtUpPartition) -> None:
        """Let a replica of a detached partition serve, which has caught up."""
        key, node_id = (report.topic_id, report.partition), NodeId(report.node_id)
        partition = self._state.find_partition(key)
        if partition is None or partition.replica_set.state_of(sender) is None:
            return  # the sender has no replica of it
        if failed_replicas.promote(self._state, key, node_id, report.version).records:
            await self._decisions.run(
                lambda: failed_replicas.promote(self._state, key, node_id, report.version),
                confirm=False)

    def _step_back(self, node_id: NodeId, request: BrokerHeartbeatRequest) -> Decision[BrokerState]:
        decision = brokers.step_back(
            self._state, node_id, request.broker_epoch, self._waited(),
            now_ms=self._clock.now_ms())
        if decision.records and decision.results[0].fenced:
            _log.warning("node %d is fenced at its own request, and other nodes serve instead: %s",
                         node_id, request.trouble)
        return decision

    async def leave(
        self, sender: NodeId, request: ControlledShutdownRequest
    ) -> ControlledShutdownResponse:
        """Fence a broker that is about to stop; returns when other nodes lead and serve."""
        del sender
        node_id = NodeId(request.node_id)
        await self._decisions.run(
            lambda: brokers.stop(self._state, node_id, request.broker_epoch,
                                 now_ms=self._clock.now_ms()))
        _log.info("node %d is leaving", node_id)
        return ControlledShutdownResponse()

    async def _promote(self, report: CaughtUpChain) -> None:
        try:
            await self._decisions.run(
                lambda: chains.promote(
                    self._state, report.chain, NodeId(report.node_id), report.version),
                confirm=False)
        except QuipuError as error:  # the chain has changed since; the tail reports again if needed
            if code_of(error) is Code.NOT_CONTROLLER:
                raise
            _log.debug("node %d is not promoted: %s", report.node_id, error)
        else:
            _log.info("node %d has caught up, and serves in chain %s", report.node_id,
                      report.chain)

    # -- time

    @property
    def _state(self) -> ClusterState:
        return self._machine.state

    @property
    def _session_ms(self) -> int:
        return self._machine.settings.broker_session_timeout_ms

    @property
    def _sweep_seconds(self) -> float:
        settings = self._machine.settings
        shortest_ms = min(settings.broker_session_timeout_ms, settings.broker_lease_ms)
        return min(shortest_ms / 1000 / SWEEPS_PER_LEASE, SWEEP_SECONDS_MAX)

    def _hear(self, node_id: NodeId) -> None:
        self._heard[node_id] = self._leased[node_id] = self._clock.monotonic()
        self._met.add(node_id)

    def _silence(self, node_id: NodeId) -> float:
        """Milliseconds since the last heartbeat of a broker."""
        now = self._clock.monotonic()
        return (now - self._heard.setdefault(node_id, now)) * 1000

    def _silent(self) -> list[NodeId]:
        return [node_id for node_id in self._state.up() if self._is_silent(node_id)]

    def _is_silent(self, node_id: NodeId) -> bool:
        """Whether this broker certainly holds no lease any more (broker.cluster.L1)."""
        return self._silence(node_id) > self._session_ms or (
            self._hung_up(node_id) and self._is_lease_over(node_id))

    def _hung_up(self, node_id: NodeId) -> bool:
        return self._has_hung_up is not None and self._has_hung_up(
            node_id, self._state.brokers[node_id].incarnation)

    def _is_lease_over(self, node_id: NodeId) -> bool:
        now = self._clock.monotonic()
        lease_ms = self._state.brokers[node_id].lease_ms or self._session_ms
        return (now - self._leased.setdefault(node_id, now)) * 1000 > lease_ms

    def _is_any_about_to_be_silent(self) -> bool:
        """Whether a broker will soon count as silent, unless it sends a heartbeat.

        Its session ends within two heartbeat intervals, or it has closed its connection.
        """
        soon = self._session_ms - 2 * self._machine.settings.broker_heartbeat_interval_ms
        return any(not self._is_silent(node_id)
                   and (self._silence(node_id) > soon or self._hung_up(node_id))
                   for node_id in self._state.up())

    def _is_any_unheard(self) -> bool:
        """Whether a broker that counts as up has sent no heartbeat in this term."""
        return any(node_id not in self._met and not self._is_silent(node_id)
                   for node_id in self._state.up())

    def _is_gone(self, sender: NodeId, node_id: NodeId) -> bool:
        """Whether the node's earlier process has certainly ended, before its session is over.

        It has for the controller's own node, because two processes cannot open its log.  But that
        is used only if no other member of its chains counts as up: such a member may have failed
        too (broker.cluster.L2).
        """
        nodes = {each for chain in self._state.chain_index.with_node(node_id)
                 for each in chain.nodes}
        others = self._state.up().keys() & nodes
        return sender == node_id == self._node_id and others <= {node_id}

    def _note_cold(self) -> None:
        """Note when each cold chain began to wait for its other nodes."""
        now, cold = self._clock.monotonic(), chains.cold(self._state)
        self._cold_since = {name: self._cold_since.get(name, now) for name in cold}

    def _waited(self) -> frozenset[str]:
        """The cold chains that have waited long enough (broker.cluster.L4)."""
        until = self._clock.monotonic() - self._machine.settings.chain_cold_start_wait_ms / 1000
        return frozenset(name for name, since in self._cold_since.items() if since <= until)


def new_cluster_id(rng: Rng) -> str:
    """A random id of 22 characters, as Kafka's are."""
    return base64.urlsafe_b64encode(rng.uuid().bytes).decode().rstrip("=")

"""The controller's watch over brokers: who is there, who is not heard of, what follows.

Invariants
    L1  a broker is fenced only if it has not been heard of for the session timeout; or if its
        process has hung up and it has not been heard of for as long as it may lead without an
        answer (its lease); or if it asks for it (it stops, or its disk has failed).  One that
        is heard of while it is being fenced is heard of after that, and told so
    L2  when a controller's reign begins, every broker counts as heard of at a moment when the last
        controller may still have answered it: whoever was told that it may go on, still may.
        That is now, but for the node that led before, whose silence is why there is a new one:
        it counts as heard of when a voter of this reign can last have followed anybody (below)
        and, unless it has hung up, has a part of a session left to be heard of
    L3  an answer to a heartbeat is given by a node that surely was the controller when the
        heartbeat came (decisions.py, M4); so L1 and L2 make the broker's lease hold
    L4  a chain whose nodes were all down waits for the last of them no longer than it is told
    L5  who went silent together is fenced together, so that a chain keeps all who served to the
        end: each of them may be the one whose disk has kept most.  Who was not met in this reign
        may have gone with the one that led before it: the one waits for the others

Why the last leader's silence may be counted from before this reign.  A lease counts from when a
heartbeat was sent.  Its answer needs a majority of the voters that heard the controller after the
heartbeat came: by a round of Raft's heartbeats, or by the entry that the decision is (M4, L3).
One voter of that majority has voted for this node, and it follows nobody older after its vote; so
the heartbeat was sent before the last moment at which any of this node's voters followed
(raft/candidate, E4: each says with its vote how long ago that was at least).  After a transfer
that moment is now, and nothing is counted; after a restart of a voter it is the restart.

Why a broker that has hung up may be fenced before its session is over.  A closed connection is no
proof: the process may live, and the network may have closed it.  So it only tells that it is worth
to look at the lease.  A lease is no longer than the broker said when it registered (kept with the
registration, so that every controller knows), and counts from when an answered heartbeat was sent;
which was before it was heard of here (or, in an earlier reign, before L2's moment).  When that much
time has passed, the broker has no lease by its own clock (membership.py, B1), exactly as after a
session: nobody acts for it.  If it lives, it connects again and is heard of before that.

Not here: what fencing does to chains (controller/brokers, controller/chains), the broker's side
(membership.py).
"""

import asyncio
import base64
import logging
from collections.abc import Callable
from typing import Final
from uuid import UUID

from quipu.broker.cluster.decisions import Decisions
from quipu.broker.cluster.machine import Machine
from quipu.broker.cluster.reports import Arrivals
from quipu.broker.cluster.requests import (
    BrokerHeartbeat,
    BrokerHeartbeatAnswer,
    BrokerRegistration,
    CaughtUpChain,
    CaughtUpPartition,
    LeaveCluster,
    LeaveClusterAnswer,
    RegisterBroker,
)
from quipu.broker.quorum.contract import Predecessor
from quipu.controller import brokers, chains, detached, reassignment
from quipu.controller.decision import Decision
from quipu.controller.members import BrokerState
from quipu.controller.records import ClusterCreated
from quipu.controller.state import ClusterState
from quipu.model.errors import Code, Kind, QuipuError, RequestError
from quipu.model.ids import ZERO_UUID, NodeId
from quipu.runtime.clock import Clock
from quipu.runtime.rng import Rng
from quipu.runtime.spawn import spawn

_log = logging.getLogger(__name__)

SWEEPS_PER_LEASE: Final = 10
SWEEP_SECONDS_MAX: Final = 0.5
GRACE_RATIO: Final = 1 / 3  # of a session: so long at least has the last leader to be heard of


HasHungUp = Callable[[NodeId, UUID], bool]  # node, incarnation: see `PeerNet.has_hung_up`


def nobody_hangs_up(node_id: NodeId, incarnation: UUID) -> bool:
    """Of a node without a network."""
    del node_id, incarnation
    return False


class Liveness:
    """Who is alive, as far as the controller knows.  Works while this node is the controller."""

    def __init__(
        self, node_id: NodeId, machine: Machine, decisions: Decisions, clock: Clock, rng: Rng,
        *, has_hung_up: HasHungUp = nobody_hangs_up,
    ) -> None:
        self._node_id = node_id
        self._machine = machine
        self._decisions = decisions
        self._clock = clock
        self._rng = rng
        self._has_hung_up = has_hung_up
        self._heard: dict[NodeId, float] = {}
        self._leased: dict[NodeId, float] = {}  # from when a lease of theirs counts, at the latest
        self._met: set[NodeId] = set()  # in this reign: others are only presumed to live (L2)
        self._cold_since: dict[str, float] = {}
        self._arrivals = Arrivals()
        self._sweeping: asyncio.Task[None] | None = None

    # -- the reign

    def begin(self, predecessor: Predecessor | None = None) -> None:
        """This node is the controller from now on, and `predecessor` is not any more."""
        now = self._clock.monotonic()
        self._heard = dict.fromkeys(self._state.brokers, now)  # L2
        self._leased = dict(self._heard)
        if predecessor is not None and predecessor.node_id in self._heard:
            self._leased[predecessor.node_id] = min(now, predecessor.led_until)
            lately = now - (1 - GRACE_RATIO) * self._session_ms / 1000
            self._heard[predecessor.node_id] = min(now, max(predecessor.led_until, lately))
        self._met.clear()
        self._cold_since.clear()
        self._arrivals = Arrivals()
        self.end()
        self._sweeping = spawn(self._sweep_on(), "liveness of brokers")

    def end(self) -> None:
        """It is no longer; safe to call at any time."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None

    async def _sweep_on(self) -> None:
        while True:
            await asyncio.sleep(self._sweep_seconds)
            try:
                await self.sweep()
            except QuipuError as error:
                if error.code is not Code.NOT_CONTROLLER:  # else `end` is about to be called
                    _log.warning("brokers could not be looked after: %s", error)
            except Exception:  # noqa: BLE001 nobody else looks after them
                _log.exception("brokers could not be looked after")

    async def sweep(self) -> None:
        """Fence who is silent, and see that every chain is as it should be."""
        self._note_cold()
        silent = self._silent()
        if silent and (self._is_about_to_be_silent() or self._is_someone_presumed()):
            return  # L5
        for node_id in silent:
            hung_up = "hung up and " if self._silence(node_id) <= self._session_ms else ""
            _log.warning("node %d has %snot been heard of for %d ms: it is fenced",
                         node_id, hung_up, self._silence(node_id))
        if silent or chains.review(self._state, self._waited()).records:
            await self._decisions.carry_out(
                lambda: brokers.fence(self._state, self._silent(), self._waited()), confirm=False)

    # -- what brokers ask

    async def register(self, sender: NodeId, request: RegisterBroker) -> BrokerRegistration:
        """A broker has started."""
        node_id = NodeId(request.node_id)
        wanted = brokers.Registration(
            node_id=node_id, name=request.name, incarnation=request.incarnation,
            host=request.host, port=request.port, rack=request.rack,
            peer_host=request.peer_host, peer_port=request.peer_port, lease_ms=request.lease_ms,
            directory_id=request.directory_id)

        def decide() -> Decision[BrokerState]:
            decision = self._registration(
                wanted, quiet=self._is_gone(sender, node_id))
            self._hear(node_id)
            if not self._state.cluster_id:
                decision.records.insert(0, ClusterCreated(cluster_id=new_cluster_id(self._rng)))
            return decision

        known = self._state.brokers.get(node_id)
        (broker,) = await self._decisions.carry_out(decide)
        if known is not None and ZERO_UUID not in (known.directory_id, broker.directory_id) and (
                known.directory_id != broker.directory_id):
            _log.warning(
                "node %d has another data directory (%s) than before (%s): it serves in its chain "
                "only after it has got all records from others; if there are none, bring the "
                "directory back, or hold an unclean election", node_id, broker.directory_id,
                known.directory_id)
        _log.info("node %d is registered", node_id, extra={
            "node": broker.name, "address": f"{broker.host}:{broker.port}"})
        return BrokerRegistration(broker_epoch=broker.epoch)

    def _registration(
        self, wanted: brokers.Registration, *, quiet: bool
    ) -> Decision[BrokerState]:
        try:
            return brokers.register(self._state, wanted, quiet=quiet)
        except RequestError as error:
            if (error.code is Code.DUPLICATE_BROKER_REGISTRATION
                    and self._state.brokers.keys() - self._met >= {wanted.node_id}):
                raise RequestError(
                    f"whether the process that was node {wanted.node_id} is gone will be known "
                    f"within {self._session_ms} ms", code=Code.REQUEST_TIMED_OUT,
                    kind=Kind.RETRY) from None
            raise

    async def heartbeat(self, sender: NodeId, request: BrokerHeartbeat) -> BrokerHeartbeatAnswer:
        """A broker is alive (L3)."""
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

        (broker,) = await self._decisions.carry_out(decide)
        if not broker.fenced:
            await self._hear_of_failures(node_id, request)
        for report in request.caught_up_chains:
            chain = self._state.chains.get(report.chain)
            if chain is not None and chain.find(sender) is not None:  # else it cannot know
                await self._promote(report)
        for caught_up in request.caught_up_partitions:
            await self._promote_in(sender, caught_up)
        arrived = self._arrivals.add(self._state, request.caught_up_partitions, sender)
        if arrived:
            await self._decisions.carry_out(
                lambda: reassignment.advance(self._state, arrived), confirm=False)
        return BrokerHeartbeatAnswer(is_fenced=broker.fenced, session_ms=self._session_ms)

    async def _hear_of_failures(self, node_id: NodeId, request: BrokerHeartbeat) -> None:
        """Take a node off the partitions whose log has failed there, and of no others."""
        failed = {(each.topic_id, each.partition) for each in request.failed_partitions}
        if not failed and not self._state.detached():
            return

        def decide() -> Decision[None]:
            brokers.current(self._state, node_id, request.broker_epoch)
            return detached.report(self._state, node_id, failed)

        if decide().records:
            await self._decisions.carry_out(decide, confirm=False)
            _log.warning("node %d: logs of %d partitions have failed there", node_id, len(failed))

    async def _promote_in(self, sender: NodeId, report: CaughtUpPartition) -> None:
        """A replica of a partition that is detached from its chain has caught up."""
        key, node_id = (report.topic_id, report.partition), NodeId(report.node_id)
        partition = self._state.find_partition(key)
        if partition is None or partition.replica_set.state_of(sender) is None:
            return  # it cannot know
        if detached.promote(self._state, key, node_id, report.version).records:
            await self._decisions.carry_out(
                lambda: detached.promote(self._state, key, node_id, report.version), confirm=False)

    def _step_back(self, node_id: NodeId, request: BrokerHeartbeat) -> Decision[BrokerState]:
        decision = brokers.step_back(
            self._state, node_id, request.broker_epoch, self._waited())
        if decision.records and decision.answers[0].fenced:
            _log.warning("node %d steps back, and others serve in its place: %s", node_id,
                         request.trouble)
        return decision

    async def leave(self, sender: NodeId, request: LeaveCluster) -> LeaveClusterAnswer:
        """A broker is about to stop; when this is answered, others have its parts."""
        del sender
        node_id = NodeId(request.node_id)
        await self._decisions.carry_out(
            lambda: brokers.stop(self._state, node_id, request.broker_epoch))
        _log.info("node %d is leaving", node_id)
        return LeaveClusterAnswer()

    async def _promote(self, report: CaughtUpChain) -> None:
        try:
            await self._decisions.carry_out(
                lambda: chains.promote(
                    self._state, report.chain, NodeId(report.node_id), report.version),
                confirm=False)
        except QuipuError as error:  # something has changed since: it is reported again, or not
            if error.code is Code.NOT_CONTROLLER:
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
        """Milliseconds since a broker was heard of."""
        now = self._clock.monotonic()
        return (now - self._heard.setdefault(node_id, now)) * 1000

    def _silent(self) -> list[NodeId]:
        return [node_id for node_id in self._state.up() if self._is_silent(node_id)]

    def _is_silent(self, node_id: NodeId) -> bool:
        """L1: is it certain that this broker acts for nobody any more?"""
        return self._silence(node_id) > self._session_ms or (
            self._hung_up(node_id) and self._is_lease_over(node_id))

    def _hung_up(self, node_id: NodeId) -> bool:
        return self._has_hung_up(node_id, self._state.brokers[node_id].incarnation)

    def _is_lease_over(self, node_id: NodeId) -> bool:
        now = self._clock.monotonic()
        lease_ms = self._state.brokers[node_id].lease_ms or self._session_ms
        return (now - self._leased.setdefault(node_id, now)) * 1000 > lease_ms

    def _is_about_to_be_silent(self) -> bool:
        """Will someone's session be over within two heartbeats, unless it is heard of; or its
        lease, since it has hung up?
        """
        soon = self._session_ms - 2 * self._machine.settings.broker_heartbeat_interval_ms
        return any(not self._is_silent(node_id)
                   and (self._silence(node_id) > soon or self._hung_up(node_id))
                   for node_id in self._state.up())

    def _is_someone_presumed(self) -> bool:
        """Does someone count as up who was not met in this reign, and still may be?"""
        return any(node_id not in self._met and not self._is_silent(node_id)
                   for node_id in self._state.up())

    def _is_gone(self, sender: NodeId, node_id: NodeId) -> bool:
        """Is it certain, before its session is over, that the process before this one is gone?

        Of the controller's own node it is: no two processes have its log.  But only where no
        other member of its chain counts as up; it may not live either (L2).
        """
        chain = self._state.chain_of(node_id)
        others = set() if chain is None else self._state.up().keys() & set(chain.nodes)
        return sender == node_id == self._node_id and others <= {node_id}

    def _note_cold(self) -> None:
        """When each chain began to wait for the rest of its nodes."""
        now, cold = self._clock.monotonic(), chains.cold(self._state)
        self._cold_since = {name: self._cold_since.get(name, now) for name in cold}

    def _waited(self) -> frozenset[str]:
        """Chains that have waited long enough (L4)."""
        until = self._clock.monotonic() - self._machine.settings.chain_cold_start_wait_ms / 1000
        return frozenset(name for name, since in self._cold_since.items() if since <= until)


def new_cluster_id(rng: Rng) -> str:
    """22 characters, as Kafka's are."""
    return base64.urlsafe_b64encode(rng.uuid().bytes).decode().rstrip("=")

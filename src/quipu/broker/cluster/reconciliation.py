"""The controller's reconciliation of diskless partitions: brings them to one replica in each rack.

Works while this node is the controller, in small steps between other decisions:

    1  give up brokers that have been down for longer than the threshold, and so racks
    2  if brokers have come, gone or changed racks, look at all diskless topics again; else only at
       those that have changed
    3  count the partitions that are not at their target, which does not wait for anything, and take
       the next step of them, as fast as the setting allows; or, if
       diskless.managed.rf.auto.reconcile is false, only count them

Invariants
    broker.cluster.R1  at most diskless.managed.rf.max.moves.per.sec replicas are added or removed
                       in a second, whatever the backlog; reassignments of chains are not counted,
                       and never wait for more than one decision of DECISION_MOVES_MAX moves
    broker.cluster.R2  a replica is removed by a later decision than the one that added its
                       successor, so brokers have heard of the one before they hear of the other
    broker.cluster.R3  a rack's deadline follows from the time at which its last broker was fenced,
                       which is in the metadata: a new controller neither resets nor skips it.
                       Within a term time is monotonic (term_clock.py), so a clock that is set does
                       not move it; between terms it is as exact as the clocks of the controllers

    broker.cluster.R4  a rack that comes back, or is new, gets replicas when all of its brokers are
                       up, or after a moment (SETTLE_SECONDS): else its first broker would get all
    broker.cluster.R5  after a time without any controller, brokers have the same moment to come
                       back before one of them is given up: nobody could have registered sooner.
                       So they have after the start of this node, whose term may be the second one
                       since then: all nodes may have started together

Not here: the target and the steps to it (controller/managed), the states of racks
(controller/racks.py).
"""

import asyncio
import logging
from typing import Final, NamedTuple
from uuid import UUID

from quipu.broker.cluster.decision_queue import DecisionQueue
from quipu.broker.cluster.state_machine import MetadataStateMachine
from quipu.broker.cluster.term_clock import TermClock
from quipu.broker.error_codes import code_of
from quipu.controller import racks
from quipu.controller.decision import Decision
from quipu.controller.managed.planning import Planner
from quipu.controller.managed.reconciling import MoveBounds, PassProgress, reconcile
from quipu.controller.managed.topology import Topology
from quipu.controller.racks import Rack, RackState
from quipu.controller.state import ClusterState
from quipu.controller.topic_state import Topic
from quipu.model.errors import Code, QuipuError
from quipu.runtime.spawn import spawn

_log = logging.getLogger(__name__)

TICK_SECONDS: Final = 0.1
DECISION_MOVES_MAX: Final = 100  # replicas: about 10 ms of the loop
LOOKED_AT_MAX: Final = 1000  # partitions that are compared with their target in one decision
DECISIONS_MAX: Final = 10  # in one tick
SETTLE_SECONDS: Final = 30.0  # but no longer than the threshold


class _Settling(NamedTuple):
    """A rack that has come back a moment ago."""

    until: float
    is_new: bool = False  # nobody knows how many brokers it is going to have


class Reconciliation:
    """Keeps diskless partitions at their target.  A metadata listener."""

    def __init__(
        self, machine: MetadataStateMachine, decisions: DecisionQueue, clock: TermClock
    ) -> None:
        self._machine = machine
        self._decisions = decisions
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._seen: tuple[Topology, frozenset[str], bool] | None = None  # of the last look
        self._give_up_from = 0.0  # broker.cluster.R5
        self._racks: dict[str, Rack] | None = None  # when they were last looked at
        self._settling: dict[str, _Settling] = {}  # by rack (broker.cluster.R4)
        self._due: dict[UUID, int] = {}  # topics to look at, and from which partition on
        self._drifted: dict[UUID, int] = {}  # partitions that are not at their target, by topic
        self._found: dict[UUID, int] = {}  # the same, of a pass that is not at its end
        self._again: set[UUID] = set()  # topics to look at again after the pass that they are in
        self._counted: set[UUID] = set()  # topics that had a pass on this topology
        self._allowance = 0.0  # moves that may be made now (broker.cluster.R1)
        self._allowed_at = 0.0
        self.moves = 0  # replicas that this controller has added or removed

    @property
    def backlog(self) -> int:
        """How many partitions are known not to be at their target."""
        return sum(self._drifted.values())

    @property
    def is_active(self) -> bool:
        """Whether this node is the controller, so that it knows the backlog."""
        return self._task is not None

    # -- the term

    def begin(self, *, is_cold: bool = False) -> None:
        """Begin a term: this node is the controller.

        `is_cold`: there was no controller before, as far as is known, so all nodes may start now.
        """
        self.end()
        self._allowed_at, self._allowance = self._clock.monotonic(), 0.0
        self._seen = self._racks = None  # look at everything
        alone_until = self._allowed_at if is_cold else self._clock.started_at
        self._give_up_from = alone_until + self._settle_seconds  # broker.cluster.R5
        self._task = spawn(self._run(), "reconciliation of diskless topics")

    def end(self) -> None:
        """End the term; safe to call at any time."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        for known in (self._due, self._drifted, self._found):
            known.clear()
        self._again.clear()
        self._counted.clear()
        self._settling.clear()

    async def _run(self) -> None:
        while True:
            try:
                await self.tick()
            except QuipuError as error:
                if code_of(error) is not Code.NOT_CONTROLLER:  # else `end` is about to be called
                    _log.warning("diskless topics could not be reconciled: %s", error)
            except Exception:  # noqa: BLE001 only this task reconciles
                _log.exception("diskless topics could not be reconciled")
            await asyncio.sleep(TICK_SECONDS)

    async def tick(self) -> None:
        """Take the steps that are due now."""
        await self._give_up()
        self._notice_topology()
        self._allow()
        for _ in range(DECISIONS_MAX):
            if not self._due or not await self._step():
                return

    # -- racks

    async def _give_up(self) -> None:
        """Give up brokers that are overdue, and log racks that become unavailable."""
        if self._clock.monotonic() < self._give_up_from:  # broker.cluster.R5
            return
        if not self._liveness_decision().records:
            return
        before = racks.racks_of(self._state.brokers.values())
        await self._decisions.run(self._liveness_decision, confirm=False)
        for rack in racks.racks_of(self._state.brokers.values()).values():
            if rack.state is RackState.UNAVAILABLE and before.get(rack.name, rack) != rack:
                _log.warning("rack %s is unavailable: none of its brokers (%s) has been up for "
                             "%d ms; its replicas of diskless partitions are removed", rack.name,
                             ", ".join(map(str, rack.brokers)),
                             self._clock.now_ms() - rack.degraded_since_ms)

    def _liveness_decision(self) -> Decision[None]:
        return Decision([*racks.liveness_records(
            self._state.brokers.values(), self._clock.now_ms(), self._threshold_ms)], [])

    @property
    def _threshold_ms(self) -> int:
        return self._machine.settings.diskless_managed_rf_rack_unavailable_threshold_ms

    @property
    def _settle_seconds(self) -> float:
        return min(SETTLE_SECONDS, self._threshold_ms / 1000)

    def _notice_returns(self) -> dict[str, Rack]:
        """The racks of now; those that have come back a moment ago are settling."""
        before, now = self._racks, self._clock.monotonic()
        self._racks = found = racks.racks_of(self._state.brokers.values())
        for name, rack in found.items():
            old = rack if before is None else before.get(name)  # all are settled at the begin
            if old is None or old.state is not RackState.HEALTHY:
                self._settling.setdefault(name, _Settling(now + self._settle_seconds, old is None))
            until, is_new = self._settling.get(name, _Settling(now))
            is_whole = not is_new and rack.brokers == rack.eligible
            if is_whole or rack.state is not RackState.HEALTHY or until <= now:
                self._settling.pop(name, None)
        return found

    # -- partitions

    def _notice_topology(self) -> None:
        """Look at all diskless topics again if the racks or their live brokers have changed."""
        topology = Topology.of_racks(self._notice_returns())
        seen = topology, frozenset(self._settling), self._is_auto
        if seen != self._seen:
            self._seen = seen
            self._found.clear()
            self._counted.clear()
            self._due = {topic.topic_id: 0 for topic in self._state.diskless_topics()}

    @property
    def _is_auto(self) -> bool:
        return self._machine.settings.diskless_managed_rf_auto_reconcile

    def _allow(self) -> None:
        """Add what the time since the last tick allows; only one tick's moves are saved."""
        now, rate = self._clock.monotonic(), self._rate
        saved_max = max(rate * TICK_SECONDS, 1.0)
        self._allowance = min(self._allowance + (now - self._allowed_at) * rate, saved_max)
        self._allowed_at = now

    @property
    def _rate(self) -> float:
        return float(self._machine.settings.diskless_managed_rf_max_moves_per_sec)

    async def _step(self) -> bool:
        """Make one decision about the topic that is due first; False if there is nothing to do."""
        topic_id = next(iter(self._due))
        topic = self._state.topics_by_id.get(topic_id)
        if topic is None or not topic.is_diskless:
            self._forget(topic_id)
            return True
        if self._is_auto and self._allowance < 1 and topic_id in self._counted:
            return False  # broker.cluster.R1
        if self._due[topic_id] == 0:
            self._again.discard(topic_id)
        progress = await self._reconcile(topic)
        self._allowance -= progress.moves
        self.moves += progress.moves
        if topic_id not in self._due:
            return True  # it was deleted meanwhile
        if progress.is_cut and self._is_auto:
            self._again.add(topic_id)
        self._found[topic_id] = self._found.get(topic_id, 0) + progress.drifted
        if progress.next_partition < len(topic.partitions):
            self._due[topic_id] = progress.next_partition
        else:
            self._ended_pass(topic_id)
        return True

    async def _reconcile(self, topic: Topic) -> PassProgress:
        """Take the next step for some partitions of `topic`."""
        moves = min(DECISION_MOVES_MAX, int(self._allowance)) if self._is_auto else 0
        first = self._due[topic.topic_id]

        def decide() -> Decision[PassProgress]:
            state = self._state
            now = state.topics_by_id.get(topic.topic_id)
            if now is None:
                return Decision([], [PassProgress(len(topic.partitions))])
            planner = Planner(Topology.of(state.brokers.values()), state.diskless_load.copy(),
                              self._settling)  # broker.cluster.R4
            return reconcile(state, now, first, planner, MoveBounds(LOOKED_AT_MAX, moves))

        decision = decide()
        if not decision.records:  # as nearly always: nothing has to be agreed upon
            return decision.results[0]
        (progress,) = await self._decisions.run(decide, confirm=False)
        return progress

    def _ended_pass(self, topic_id: UUID) -> None:
        """All partitions of a topic were looked at; if it is to be looked at again, it is last."""
        self._counted.add(topic_id)
        drifted = self._found.pop(topic_id, 0)
        if drifted:
            self._drifted[topic_id] = drifted
        else:
            self._drifted.pop(topic_id, None)
        del self._due[topic_id]
        if topic_id in self._again:
            self._due[topic_id] = 0

    def _forget(self, topic_id: UUID) -> None:
        for known in (self._due, self._drifted, self._found):
            known.pop(topic_id, None)
        self._again.discard(topic_id)
        self._counted.discard(topic_id)

    @property
    def _state(self) -> ClusterState:
        return self._machine.state

    # -- changes of the metadata

    def on_topic_created(self, topic: Topic) -> None:
        self._changed(topic)

    def on_partitions_added(self, topic: Topic, first_new: int) -> None:
        del first_new
        self._changed(topic)

    def on_replicas_changed(self, topic: Topic) -> None:
        self._changed(topic)

    def on_topic_deleted(self, topic: Topic) -> None:
        self._forget(topic.topic_id)

    def on_config_changed(self, topic: Topic) -> None: ...

    def on_brokers_changed(self) -> None: ...  # the next tick notices

    def _changed(self, topic: Topic) -> None:
        if self._task is not None and topic.is_diskless:
            self._due.setdefault(topic.topic_id, 0)
            self._again.add(topic.topic_id)

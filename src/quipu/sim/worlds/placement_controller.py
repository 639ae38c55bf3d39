"""Controllers of a world of managed placement: the real reconciliation on a simulated quorum.

One of them leads at a time.  It builds its state from a snapshot when it begins, decides through
the real queue of decisions, and keeps its times by the clock of its own machine.  A proposal takes
a while; that of a controller that is killed or deposed meanwhile may be committed or lost.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from quipu.broker.cluster.decision_queue import DecisionQueue, not_controller
from quipu.broker.cluster.reconciliation import Reconciliation
from quipu.broker.cluster.state_machine import MetadataStateMachine
from quipu.broker.cluster.term_clock import TermClock
from quipu.controller.decision import Decision
from quipu.controller.records import ClusterCreated, Record, decode_record
from quipu.model.ids import NodeId, RaftIndex
from quipu.model.settings import BrokerSettings
from quipu.sim.dice import Dice
from quipu.sim.world import Machine

PROPOSAL_SECONDS_MAX: Final = 0.02
RECONCILIATION: Final = "reconciliation"  # the origin of its decisions; others have their request's

Result = TypeVar("Result")
Decide = Callable[[DecisionQueue, TermClock], Any]


class CommitObserver(Protocol):
    """Is told of each decision that is committed."""

    def before(self) -> None: ...
    def committed(self, records: Sequence[Record], origin: str) -> None: ...


class SimQuorum:
    """What all controllers agree on: the metadata, and who leads."""

    def __init__(self, dice: Dice, settings: BrokerSettings, observer: CommitObserver) -> None:
        self.settings = settings
        self.truth = MetadataStateMachine(settings, on_leadership=lambda _: None)
        self.truth.state.apply(ClusterCreated(cluster_id="simulated"))
        self.leader: NodeId | None = None
        self.dice = dice
        self.commit_count = 0
        self._observer = observer

    def commit(self, commands: Sequence[bytes], origin: str) -> None:
        """Make a decision part of the metadata."""
        self._observer.before()
        records = [decode_record(command) for command in commands]
        self.truth.apply(RaftIndex(self.commit_count), commands)
        self.commit_count += 1
        self._observer.committed(records, origin)


class SimSeat:
    """A controller's place in the quorum, for one term; the part of `Consensus` that is used."""

    def __init__(self, quorum: SimQuorum, node_id: NodeId, machine: MetadataStateMachine) -> None:
        self._quorum = quorum
        self._node_id = node_id
        self._machine = machine
        self.is_deposed = False
        self.origin = ""  # of the decision that is being made

    @property
    def leader(self) -> NodeId | None:
        return self._quorum.leader

    @property
    def is_leader(self) -> bool:
        return not self.is_deposed

    async def propose(self, commands: Sequence[bytes]) -> RaftIndex:
        origin, dice = self.origin, self._quorum.dice
        if dice.flip(0.5):  # committed early: a controller may end before it hears of it
            self._check()
            self._quorum.commit(commands, origin)
            await asyncio.sleep(dice.between(0, PROPOSAL_SECONDS_MAX))
        else:
            await asyncio.sleep(dice.between(0, PROPOSAL_SECONDS_MAX))
            self._check()
            self._quorum.commit(commands, origin)
        self._machine.apply(RaftIndex(self._quorum.commit_count), commands)
        self._check()
        return RaftIndex(self._quorum.commit_count)

    async def barrier(self) -> None:
        self._check()

    def _check(self) -> None:
        if self.is_deposed:
            raise not_controller(self._quorum.leader)


class NamedDecisions:
    """The queue of decisions, for one who asks: the seat knows whose decision is proposed."""

    def __init__(self, queue: DecisionQueue, seat: SimSeat, name: str) -> None:
        self._queue = queue
        self._seat = seat
        self._name = name

    async def run(
        self, decide: Callable[[], Decision[Result]], *, confirm: bool = True
    ) -> list[Result]:
        def named() -> Decision[Result]:
            self._seat.origin = self._name
            return decide()

        return await self._queue.run(named, confirm=confirm)


class SimController:
    """A controller's process: idle until it leads.  A `Program`."""

    def __init__(self, machine: Machine, quorum: SimQuorum, node_id: NodeId) -> None:
        self.node_id = node_id
        self.reconciliation: Reconciliation | None = None
        self._quorum = quorum
        self._clock = TermClock(machine.clock)
        self._seat: SimSeat | None = None
        self._metadata: MetadataStateMachine | None = None
        self._queue: DecisionQueue | None = None

    async def start(self) -> None: ...

    async def stop(self) -> None:
        self.end()

    async def lead(self) -> None:
        """Begin a term, with everything that was committed before."""
        quorum = self._quorum
        metadata = MetadataStateMachine(quorum.settings, on_leadership=lambda _: None)
        metadata.restore(quorum.truth.snapshot())
        self._metadata = metadata
        self._seat = seat = SimSeat(quorum, self.node_id, metadata)
        self._queue = DecisionQueue(seat, metadata.listeners)  # type: ignore[arg-type]  # a part
        self._clock.begin()
        named = NamedDecisions(self._queue, seat, RECONCILIATION)
        self.reconciliation = Reconciliation(
            metadata, named, self._clock)  # type: ignore[arg-type]  # the part that it uses
        metadata.listeners.add(self.reconciliation)
        self.reconciliation.begin()

    def end(self) -> None:
        """End the term."""
        if self._seat is not None:
            self._seat.is_deposed = True
        if self.reconciliation is not None:
            self.reconciliation.end()
            self.reconciliation = None

    async def request(
        self, what: str, decide: Callable[["SimController"], Decision[Any]]
    ) -> None:
        """Have something decided that a client or a broker asks for."""
        assert self._queue is not None
        assert self._seat is not None
        await NamedDecisions(self._queue, self._seat, what).run(
            lambda: decide(self), confirm=False)

    @property
    def metadata(self) -> MetadataStateMachine:
        assert self._metadata is not None
        return self._metadata

    @property
    def now_ms(self) -> int:
        return self._clock.now_ms()

    @property
    def started_at(self) -> float:
        return self._clock.started_at

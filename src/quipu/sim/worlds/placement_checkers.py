"""Checks of managed placement: of each decision, as it is committed, and of the end.

    load       of brokers, counted anew (controller.L1)
    racks      their states, by the world's own time (controller.K1, controller.K3,
               broker.cluster.R3)
    steps      what reconciliation adds and removes, and why (controller.M1, controller.M2,
               broker.cluster.R2)
    leaders    move only when they must (controller.D3, controller.M3)
    pace       moves in a second, and what requests wait for (broker.cluster.R1)
    snapshots  give the same state (controller.S5)

What the racks are is found here without the code that is checked.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple
from uuid import UUID

from quipu.broker.cluster.reconciliation import TICK_SECONDS
from quipu.controller.managed.load import ReplicaLoad
from quipu.controller.members import BrokerState
from quipu.controller.placement import DisklessPlacement
from quipu.controller.racks import TRANSITIONS, RackState, rack_of, racks_of
from quipu.controller.records import Record, decode_record, encode_record
from quipu.controller.snapshot import records_of
from quipu.controller.state import ClusterState
from quipu.controller.topic_state import diskless_replicas
from quipu.model.ids import NodeId
from quipu.sim.world import Violation
from quipu.sim.worlds.placement_controller import RECONCILIATION

SKEW_MS_MAX: Final = 200  # of a controller's clock, either way
EARLY_SECONDS_MAX: Final = 2 * SKEW_MS_MAX / 1000 + 0.1
LATE_SECONDS_MAX: Final = 2 * SKEW_MS_MAX / 1000 + 0.8
LED_SECONDS_MIN: Final = 0.8  # after which a controller has looked at everything
SNAPSHOT_EVERY: Final = 10  # decisions

Key = tuple[UUID, int]


class _Seen(NamedTuple):
    """The racks, found without the code that is checked."""

    rack_of: Mapping[NodeId, str]
    eligible: AbstractSet[str]  # racks with a broker that is up
    up: AbstractSet[NodeId]
    gone: AbstractSet[NodeId]  # given up, and not in a rack that is waited for

    @classmethod
    def of(cls, brokers: Mapping[NodeId, BrokerState]) -> "_Seen":
        racks = {node_id: broker.rack or "unknown" for node_id, broker in brokers.items()}
        eligible = {racks[node_id] for node_id, broker in brokers.items() if not broker.fenced}
        awaited = {racks[node_id] for node_id, broker in brokers.items()
                   if not broker.given_up} - eligible
        return cls(
            racks, eligible, {node_id for node_id in brokers if not brokers[node_id].fenced},
            {node_id for node_id, broker in brokers.items()
             if broker.given_up and racks[node_id] not in awaited})


class PlacementChecker:
    """Watches what is committed; raises `Violation`."""

    def __init__(self, threshold_seconds: float, rate: int, now: Callable[[], float]) -> None:
        self.state: Callable[[], ClusterState] = ClusterState
        self.moves = 0  # of reconciliation
        self._threshold = threshold_seconds
        self._rate = rate
        self._now = now
        self._before: dict[Key, DisklessPlacement] = {}
        self._seen = _Seen.of({})
        self._states: dict[str, RackState] = {}
        self._up: set[NodeId] = set()
        self._down_since: dict[NodeId, float] = {}
        self._given_up: set[NodeId] = set()
        self._racks: dict[NodeId, str] = {}
        self._recent: deque[tuple[float, int]] = deque()  # moves of the last second
        self._waiting: dict[int, int] = {}  # decisions of reconciliation, by request that waits
        self._count = 0

    # -- decisions

    def before(self) -> None:
        """Remember what there is before a decision is applied."""
        state = self.state()
        self._before = placements(state)
        self._seen = _Seen.of(state.brokers)
        self._states = {name: rack.state for name, rack in racks_of(state.brokers.values()).items()}
        self._up = {node_id for node_id in state.brokers if state.is_up(node_id)}

    def committed(self, records: Sequence[Record], origin: str) -> None:
        """Check what a decision has changed."""
        del records
        state, self._count = self.state(), self._count + 1
        after = placements(state)
        self._check_load(state)
        self._check_racks(state)
        self._check_leaders(state, after, is_election=origin in ("elect", "move"))
        if origin == RECONCILIATION:
            self._check_steps(after)
            self._check_pace(after)
            for number in self._waiting:
                self._waiting[number] += 1
        if self._count % SNAPSHOT_EVERY == 0:
            self._check_snapshot(state)

    def _check_load(self, state: ClusterState) -> None:
        load = ReplicaLoad()
        for topic in state.topics.values():
            load.count_all(diskless_replicas(topic.partitions))
        require(load == state.diskless_load, "controller.L1: the load is not what is counted")

    def _check_racks(self, state: ClusterState) -> None:
        now = self._now()
        for name, rack in racks_of(state.brokers.values()).items():
            require((rack.state is RackState.HEALTHY) == bool(rack.eligible), f"K1: {rack}")
            was = self._states.get(name, rack.state)
            require(was is rack.state or rack.state in TRANSITIONS[was].values(),
                    f"controller.K3: {name} from {was.name} to {rack.state.name}")
        for node_id, broker in state.brokers.items():
            if not broker.fenced:
                self._down_since.pop(node_id, None)
                self._given_up.discard(node_id)
                continue
            if self._racks.get(node_id) != rack_of(broker):
                self._down_since[node_id] = now  # it registered in another rack
            since = self._down_since.setdefault(node_id, now)
            if broker.given_up and node_id not in self._given_up:
                self._given_up.add(node_id)
                is_new = since == now  # it registered, in a rack that was given up
                require(is_new or now - since > self._threshold - EARLY_SECONDS_MAX,
                        f"R3: broker {node_id} was given up after {now - since:.2f} s")
        self._racks = {node_id: rack_of(broker) for node_id, broker in state.brokers.items()}
        for node_id in [each for each in self._down_since if each not in state.brokers]:
            del self._down_since[node_id]
            self._given_up.discard(node_id)

    def _check_leaders(
        self, state: ClusterState, after: dict[Key, DisklessPlacement], *, is_election: bool
    ) -> None:
        for key, new in after.items():
            old = self._before.get(key)
            partition = state.topics_by_id[key[0]].partitions[key[1]]
            require(partition.isr == partition.replicas, f"controller.D4: {partition}")
            require(not state.up() or state.is_up(partition.leader), f"controller.D1: {partition}")
            if old is None or old.leader == new.leader or is_election:
                continue
            stays = (old.leader in self._up and state.is_up(old.leader)
                     and old.leader in new.replicas)
            require(not stays, f"controller.D3: {old} became {new}")

    def _check_steps(self, after: dict[Key, DisklessPlacement]) -> None:
        topology = self._seen
        for key, new in after.items():
            old = self._before[key]
            added = set(new.replicas) - set(old.replicas)
            removed = set(old.replicas) - set(new.replicas)
            require(not (added and removed), f"broker.cluster.R2: {old} became {new}")
            there = {topology.rack_of.get(node_id) for node_id in old.replicas
                     if node_id not in topology.gone}
            for node_id in added:
                rack = topology.rack_of[node_id]
                require(rack not in there, f"controller.M1: {node_id} is a second one in {rack}")
                require(node_id in topology.up, f"controller.M1: {node_id} is down")
                there.add(rack)
            stays = {topology.rack_of.get(node_id) for node_id in new.replicas}
            for node_id in removed:
                was_in = topology.rack_of.get(node_id)
                require(node_id in topology.gone or was_in is None or was_in in stays,
                        f"controller.M2: {node_id} was removed from {old}")
                require(topology.eligible <= stays,
                        f"controller.M2: {node_id} was removed before others were added: {old}")
            require(old.leader not in topology.up or new.leader == old.leader,
                    f"controller.M3: {old} became {new}")

    def _check_pace(self, after: dict[Key, DisklessPlacement]) -> None:
        moves = sum(len(set(new.replicas) ^ set(self._before[key].replicas))
                    for key, new in after.items())
        now = self._now()
        self.moves += moves
        self._recent.append((now, moves))
        while self._recent[0][0] <= now - 1.0:
            self._recent.popleft()
        total = sum(number for _, number in self._recent)
        allowed = self._rate * (1 + TICK_SECONDS) * 1.1 + 2
        require(total <= allowed, f"broker.cluster.R1: {total} moves in a second, not {allowed}")

    def _check_snapshot(self, state: ClusterState) -> None:
        copy = ClusterState()
        for record in records_of(state):
            copy.apply(decode_record(encode_record(record)))
        require(copy == state, "controller.S5: a snapshot gives another state")

    # -- requests

    def asked(self, number: int) -> None:
        """A request waits for its decision."""
        self._waiting[number] = 0

    def decided(self, number: int) -> None:
        """It is decided now."""
        waited = self._waiting.pop(number, 0)
        require(waited <= 1, f"broker.cluster.R1: a request waited for {waited} decisions")

    def forget_requests(self) -> None:
        """The controller that they were sent to is gone."""
        self._waiting.clear()

    # -- time

    def check_deadlines(self, led_since: float, started_at: float) -> None:
        """broker.cluster.R3: who is down for longer than the threshold is given up by now.

        Only a controller that has started a moment ago waits for longer (broker.cluster.R5).
        """
        now = self._now()
        if now - led_since < LED_SECONDS_MIN:
            return
        for node_id, since in self._down_since.items():
            late = now - max(since, started_at) - self._threshold
            require(node_id in self._given_up or late < LATE_SECONDS_MAX,
                    f"R3: broker {node_id} is not given up, {late:.2f} s after the threshold")

    def check_end(self) -> None:
        """One replica in each rack, on a broker that is up."""
        state = self.state()
        seen = _Seen.of(state.brokers)
        for placement in placements(state).values():
            racks = Counter(seen.rack_of[node_id] for node_id in placement.replicas)
            require(set(racks) == seen.eligible, f"racks of {placement}: {seen.eligible}")
            require(set(racks.values()) == {1}, f"two replicas in one rack: {placement}")


def placements(state: ClusterState) -> dict[Key, DisklessPlacement]:
    """The placements of all diskless partitions."""
    found = {}
    for topic in state.diskless_topics():
        for index, partition in enumerate(topic.partitions):
            assert isinstance(partition.placement, DisklessPlacement)
            found[topic.topic_id, index] = partition.placement
    return found


def require(holds: bool, what: str) -> None:  # noqa: FBT001 as an assertion
    if not holds:
        raise Violation(what)

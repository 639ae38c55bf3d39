"""A controller for worlds of chains: one object that never fails, with the rules of the real one.

It knows whether each node is registered, with which life (process), and whether it is fenced.
After every change it reviews the members:

    if some serving member is up with the life that it serves with: serving ones that are down go
    offline
    if none is: once all are back, or the wait is over, those that are back with the disk that
    they served with serve with their new lives; if none is back, nothing changes
    offline members that are up start to sync; syncing ones that are down, or have a new life, go
    offline

Not here: the real one (controller/), which decides the same for many chains.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from quipu.model.chains import MemberState, ReplicaMember, ReplicaSet
from quipu.model.ids import Epoch, NodeId


class MemberLife(NamedTuple):
    """A member, and the life and the disk with which it serves or syncs."""

    node_id: NodeId
    state: MemberState
    life: int
    disk: int = 0


class Oracle:
    """The controller's view of one chain."""

    def __init__(self, nodes: Sequence[NodeId]) -> None:
        self.places: list[MemberLife] = [MemberLife(node, MemberState.SERVING, 0) for node in nodes]
        self.epoch = Epoch(1)
        self.version = 1
        self.lives: dict[NodeId, int] = {}  # of registered nodes that are not fenced
        self.disks: dict[NodeId, int] = {}  # of the same
        self.moving_to: tuple[NodeId, ...] = ()
        self._reported: set[NodeId] = set()
        self.history: dict[int, tuple[NodeId, ...]] = {1: tuple(nodes)}

    @property
    def replica_set(self) -> ReplicaSet:
        return ReplicaSet(epoch=self.epoch, version=self.version, members=tuple(
            ReplicaMember(place.node_id, place.state) for place in self.places))

    def life_of(self, node: NodeId) -> int | None:
        """The life with which `node` is a member; None if it is not a member."""
        for place in self.places:
            if place.node_id == node:
                return place.life
        return None

    def serving(self) -> list[MemberLife]:
        return [place for place in self.places if place.state is MemberState.SERVING]

    @property
    def is_cold(self) -> bool:
        """Whether no serving member is up with the life that it serves with."""
        return not any(self._is_live(place) for place in self.serving())

    @property
    def is_moving(self) -> bool:
        return bool(self.moving_to)

    def _is_live(self, place: MemberLife) -> bool:
        return self.lives.get(place.node_id) == place.life

    # --- events from nodes ------------------------------------------------------------------

    def register(self, node: NodeId, life: int, disk: int) -> None:
        self.lives[node] = life
        self.disks[node] = disk

    def fence(self, node: NodeId) -> None:
        self.lives.pop(node, None)

    def report(self, node: NodeId, version: int) -> bool:
        """A syncing member has caught up; False if the report is of another version."""
        if version != self.version or node not in self._syncing():
            return False
        if self.moving_to:
            self._reported.add(node)
            promoted = [name for name in self._syncing() if name in self.moving_to]
            is_there = {place.node_id for place in self.serving()} | self._reported
            if not promoted or not set(self.moving_to) <= is_there:
                return False
        else:
            promoted = [node]
        serving = [place for place in self.places if place.state is MemberState.SERVING]
        joining = [place._replace(state=MemberState.SERVING) for place in self.places
                   if place.node_id in promoted]
        rest = [place for place in self.places if place not in serving
                and place.node_id not in promoted]
        self._change([*serving, *joining, *rest], is_new_epoch=True)
        return True

    def _syncing(self) -> list[NodeId]:
        return [place.node_id for place in self.places if place.state is MemberState.SYNCING]

    # --- requests of operators --------------------------------------------------------------

    def extend(self, nodes: Iterable[NodeId]) -> None:
        known = {place.node_id for place in self.places}
        new = [MemberLife(node, MemberState.OFFLINE, 0) for node in nodes if node not in known]
        if new:
            self._change([*self.places, *new], is_new_epoch=False)

    def move(self, nodes: Sequence[NodeId]) -> None:
        """Reassign: once all of `nodes` have caught up, they serve, and no other node does."""
        self.moving_to = tuple(nodes)
        self.extend(nodes)

    def finish_move(self) -> bool:
        """Remove all other members, if all nodes that the chain moves to serve."""
        serving = [place.node_id for place in self.serving()]
        if not self.moving_to or not set(self.moving_to) <= set(serving):
            return False
        self._change([place for place in self.places if place.node_id in self.moving_to],
                     is_new_epoch=True)
        self.moving_to = ()
        return True

    @property
    def is_lost(self) -> bool:
        """Whether all serving members are back, but none with the disk that it served with."""
        serving = self.serving()
        return all(place.node_id in self.lives for place in serving) and not any(
            map(self._has_returned, serving))

    def elect(self, node: NodeId) -> None:
        """An unclean election: `node` serves alone from now on."""
        rest = [place._replace(state=MemberState.OFFLINE) for place in self.places
                if place.node_id != node]
        first = MemberLife(node, MemberState.SERVING, self.lives[node], self.disks[node])
        self._change([first, *rest],
                     is_new_epoch=True)

    def reorder(self, order: Sequence[int]) -> None:
        """Serving members in another order, as when a leader is elected by hand."""
        serving = self.serving()
        rest = [place for place in self.places if place not in serving]
        self._change([*(serving[index] for index in order), *rest], is_new_epoch=True)

    # --- the review -------------------------------------------------------------------------

    def review(self, *, is_wait_over: bool = False) -> bool:
        """Update the states of the members; True if that changed anything."""
        changed = self._review_serving(is_wait_over=is_wait_over)
        return self._review_others() or changed

    def _review_serving(self, *, is_wait_over: bool) -> bool:
        serving = self.serving()
        if self.is_cold:
            back = [place for place in serving if self._has_returned(place)]
            if not back or (len(back) < len(serving) and not is_wait_over):
                return False
            stay = [place._replace(life=self.lives[place.node_id]) for place in back]
        else:
            stay = [place for place in serving if self._is_live(place)]
            if len(stay) == len(serving):
                return False
        names = {place.node_id for place in stay}
        syncing = [place for place in self.places if place.state is MemberState.SYNCING]
        gone = [place._replace(state=MemberState.OFFLINE) for place in self.places
                if place not in syncing and place.node_id not in names]
        self._change([*stay, *syncing, *gone], is_new_epoch=True)
        return True

    def _has_returned(self, place: MemberLife) -> bool:
        return place.node_id in self.lives and self.disks[place.node_id] == place.disk

    def _review_others(self) -> bool:
        def is_ready(place: MemberLife) -> bool:
            return not self.is_cold and place.node_id in self.lives

        serving = self.serving()
        stay = [place for place in self.places
                if place.state is MemberState.SYNCING and self._is_live(place)]
        others = [place for place in self.places if place not in serving and place not in stay]
        joining = [MemberLife(place.node_id, MemberState.SYNCING, self.lives[place.node_id],
                         self.disks[place.node_id])
                   for place in others if is_ready(place)]
        gone = [place._replace(state=MemberState.OFFLINE) for place in others
                if not is_ready(place)]
        places = [*serving, *stay, *joining, *gone]
        if [(place.node_id, place.state) for place in places] == [
                (place.node_id, place.state) for place in self.places] and not joining:
            return False
        self._change(places, is_new_epoch=False)
        return True

    def _change(self, places: list[MemberLife], *, is_new_epoch: bool) -> None:
        self.places = places
        self.version += 1
        self._reported.clear()
        if is_new_epoch:
            self.epoch = Epoch(self.epoch + 1)
            self.history[self.epoch] = tuple(place.node_id for place in self.serving())

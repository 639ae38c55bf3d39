"""Random histories of moves, cancels, failures and restarts; acknowledged records are followed.

The test knows what each node has of each partition.  A write is acknowledged when every serving
member, and every member that was reported to have caught up, has it; so a member may serve only if
it has all that was acknowledged.
"""

import random
from uuid import UUID

import pytest

from quipu.controller import brokers, chains, failed_replicas, reassignment
from quipu.controller.brokers import Registration
from quipu.controller.reassignment import CaughtUp, Reassignment, awaited
from quipu.controller.snapshot import records_of
from quipu.controller.state import ClusterState, Key
from quipu.controller.topic_requests import NewTopic
from quipu.controller.topic_state import PartitionState
from quipu.controller.topics import create_topics
from quipu.model.chains import MemberState
from quipu.model.ids import NodeId
from quipu.model.settings import BrokerSettings
from tests.controller.states import carry_out, ids, state_with

NODES = 6
PARTITIONS = 4
STEPS = 150


class History:
    """A cluster of two chains of three nodes, and what its nodes have."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.state = state_with(a=3, b=3)
        wanted = [NewTopic("t", assignments=[(index, (1, 2, 3)) for index in range(PARTITIONS)])]
        carry_out(self.state, create_topics(self.state, wanted, BrokerSettings(), ids()))
        self.lives = dict.fromkeys(range(1, NODES + 1), 1)
        self.disks = dict.fromkeys(range(1, NODES + 1), 1)
        self.acked = dict.fromkeys(range(PARTITIONS), 0)
        self.held: dict[tuple[int, int], int] = {}  # partition, node: records
        self.required: dict[tuple[int, int], set[NodeId]] = {}  # partition, version: caught up
        self.failed: dict[int, set[Key]] = {}  # by node
        self.targets: dict[int, tuple[int, ...]] = dict.fromkeys(range(PARTITIONS), (1, 2, 3))

    # -- what happens

    def step(self) -> None:
        self.dice.choices(
            [self.write, self.catch_up, self.commit_configuration, self.promote, self.move,
             self.cancel, self.stop, self.start, self.fail, self.mend, self.review],
            [20, 14, 14, 10, 6, 2, 4, 8, 2, 3, 3])[0]()
        self.check()

    def write(self) -> None:
        index = self.some_partition()
        partition = self.partition(index)
        required = self.required.get((index, partition.partition_epoch), set())
        nodes = {*partition.replica_set.serving, *required}
        if partition.leader >= 0 and all(self.is_part(node, partition) for node in nodes):
            self.acked[index] += 1
            for node in nodes:
                self.held[index, node] = self.acked[index]

    def catch_up(self) -> None:
        """The syncing members of a partition get all records, and nothing is committed without
        them from now on; maybe the controller hears of it.
        """
        index = self.some_partition()
        partition = self.partition(index)
        caught = self.required.setdefault((index, partition.partition_epoch), set())
        if not any(self.is_part(node, partition) for node in partition.replica_set.serving):
            return
        for node in partition.replica_set.syncing:
            if not self.is_part(node, partition):
                break
            self.held[index, node] = self.acked[index]
            caught.add(node)
        if partition.moving_to is not None and caught >= awaited(self.state, partition) and (
                not partition.placement.joined):  # type: ignore[union-attr]
            self.advance(index, partition)

    def commit_configuration(self) -> None:
        index = self.some_partition()
        partition = self.partition(index)
        if partition.moving_to is None or not all(
                self.is_part(node, partition) for node in partition.replica_set.serving):
            return
        if partition.placement.joined or not awaited(  # type: ignore[union-attr]
                self.state, partition):
            self.advance(index, partition)

    def advance(self, index: int, partition: PartitionState) -> None:
        report = CaughtUp(self.key(index)[0], index, partition.partition_epoch)
        carry_out(self.state, reassignment.advance(self.state, [report]))

    def promote(self) -> None:
        """The first syncing member of a chain has caught up everywhere, or of a detached one."""
        chain = self.dice.choice(list(self.state.chains.values()))
        syncing = chain.within(MemberState.SYNCING)
        served = [index for topic, index in self.state.partitions_on(chain.name)]
        if syncing and all(map(self.state.is_live, (*chain.serving, syncing[0]))) and all(
                self.partition(index).replica_set.syncing[:1] == (syncing[0].node_id,)
                for index in served):
            for index in served:
                self.held[index, syncing[0].node_id] = self.acked[index]
            carry_out(self.state, chains.promote(
                self.state, chain.name, syncing[0].node_id, self.state.chain_mark(chain.name)))
        for key, placement in self.state.detached_partitions():
            partition = self.partition(key[1])
            own = placement.own_chain
            assert own is not None
            caught = own.within(MemberState.SYNCING)[:1]
            if caught and all(map(self.state.is_live, (*own.serving, *caught))):
                self.held[key[1], caught[0].node_id] = self.acked[key[1]]
                carry_out(self.state, failed_replicas.promote(
                    self.state, key, caught[0].node_id, partition.partition_epoch))

    def move(self) -> None:
        index = self.some_partition()
        to = tuple(self.dice.sample(range(1, NODES + 1), self.dice.randint(1, 4)))
        wanted = Reassignment("t", index, to)
        (result,) = carry_out(self.state, reassignment.alter(self.state, [wanted]))
        if not result.code:
            self.targets[index] = to

    def cancel(self) -> None:
        index = self.some_partition()
        wanted = Reassignment("t", index, None)
        carry_out(self.state, reassignment.alter(self.state, [wanted]))

    def stop(self) -> None:
        up = sorted(self.state.up())
        if up:
            carry_out(self.state, brokers.fence(self.state, [self.dice.choice(up)]))

    def start(self) -> None:
        """A process of a node that is down starts; with an empty disk if no record is lost."""
        down = [node for node in self.lives if not self.state.is_up(NodeId(node))]
        if not down:
            return
        node = self.dice.choice(down)
        if self.dice.random() < 0.2 and self.may_lose(node):
            self.disks[node] += 1
            self.held = {key: count for key, count in self.held.items() if key[1] != node}
        self.lives[node] += 1
        self.failed.pop(node, None)
        name = f"{'a' if node <= 3 else 'b'}-{(node - 1) % 3}"
        (broker,) = carry_out(self.state, brokers.register(self.state, Registration(
            node_id=NodeId(node), name=name, incarnation=UUID(int=node << 16 | self.lives[node]),
            directory_id=UUID(int=node << 20 | self.disks[node]), host="h", port=1), quiet=True))
        carry_out(self.state, brokers.unfence(self.state, broker.node_id, broker.epoch))

    def may_lose(self, node: int) -> bool:
        """Whether no chain counts on what this node has."""
        return all(node not in chain.replica_set.serving
                   for chain in self.state.chains.values()) and all(
            node not in self.partition(index).replica_set.serving for index in range(PARTITIONS))

    def fail(self) -> None:
        up = sorted(self.state.up())
        if up:
            node = self.dice.choice(up)
            self.failed.setdefault(node, set()).add(self.key(self.some_partition()))
            carry_out(self.state, failed_replicas.report(
                self.state, node, self.failed[node]))

    def mend(self) -> None:
        for node in sorted(self.failed):
            if self.state.is_up(NodeId(node)):
                del self.failed[node]
                carry_out(self.state, failed_replicas.report(self.state, NodeId(node), set()))
                return

    def review(self) -> None:
        waited = chains.cold(self.state) if self.dice.random() < 0.3 else frozenset[str]()
        carry_out(self.state, chains.reconcile(self.state, waited))

    # -- what must hold

    def check(self) -> None:
        for index in range(PARTITIONS):
            partition = self.partition(index)
            for node in partition.replica_set.serving:
                if self.is_part(node, partition):
                    assert self.held.get((index, node), 0) == self.acked[index], (
                        index, node, partition)  # controller.J1

    def come_to_rest(self) -> None:
        """All nodes are up, all logs are whole, and everything that is due is reported."""
        while self.failed:
            self.mend()
            for node in sorted(self.failed):
                if not self.state.is_up(NodeId(node)):
                    del self.failed[node]
        for _ in range(400):
            self.start()
            waited = chains.cold(self.state)
            carry_out(self.state, chains.reconcile(self.state, waited))
            self.promote()
            self.catch_up()
            self.commit_configuration()
            self.check()

    # -- small

    def key(self, index: int) -> Key:
        return self.state.topics["t"].topic_id, index

    def partition(self, index: int) -> PartitionState:
        return self.state.topics["t"].partitions[index]

    def some_partition(self) -> int:
        return self.dice.randrange(PARTITIONS)

    def is_part(self, node: int, partition: PartitionState) -> bool:
        member = self.state.member_of(NodeId(node), partition)
        return member is not None and self.state.is_live(member) and (
            self.key(self.state.topics["t"].partitions.index(partition))
            not in self.failed.get(node, set()))


@pytest.mark.parametrize("seed", range(60))
def test_a_member_serves_only_with_every_record(seed: int) -> None:
    """K6, V14, controller.J1, controller.J2: whatever moves, fails and restarts when; and in the
    end everything is where it was last sent, or was before its move was called off.
    """
    history = History(seed)
    for _ in range(STEPS):
        history.step()
    history.come_to_rest()
    state = history.state
    assert reassignment.ongoing(state) == []
    for index in range(PARTITIONS):
        partition = history.partition(index)
        assert partition.leader in partition.replicas
        assert set(partition.isr) == set(partition.replicas)
        assert len(partition.replicas) == len(set(partition.replicas))
    used = {partition.placement.chain for partition in  # type: ignore[union-attr]
            map(history.partition, range(PARTITIONS))}
    assert set(state.chains) == {"a", "b"} | used
    assert state_copy(state).topics == state.topics


def state_copy(state: ClusterState) -> ClusterState:
    """The state as a snapshot gives it."""
    again = ClusterState()
    for record in records_of(state):
        again.apply(record)
    return again

"""Any order of lives, deaths, chains, elections and moves: what must hold, holds after each step.

Topics have any replication factor, on one chain or spread, in fixed or rotated order.

Beside the state there is a model of the world: which processes run, and how many records each
node has of each partition.  Records are committed when every serving process has them; a process
that is restarted while others serve may have lost its last ones.
"""

from collections import defaultdict
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from quipu.controller import (
    brokers,
    chains,
    derived_chains,
    elections,
    failed_replicas,
    placement,
    reassignment,
    topics,
)
from quipu.controller.decision import Decision
from quipu.controller.elections import ElectionType
from quipu.controller.records import decode_record, encode_record
from quipu.controller.snapshot import records_of
from quipu.controller.state import ClusterState
from quipu.controller.topic_state import PartitionState, Topic
from quipu.model.chains import MemberState, ReplicaSet
from quipu.model.errors import RequestError
from quipu.model.ids import NO_NODE, ZERO_UUID, NodeId
from quipu.model.settings import BrokerSettings
from tests.controller.states import carry_out, ids, incarnation, nodes_with, on_chain, register

NAMES = {1: "a-2", 2: "a-10", 3: "a-1", 4: "b-0", 5: "b-1", 6: "b-2"}
NODES = st.sampled_from(sorted(NAMES))
CHAINS = st.sampled_from(["a", "b"])
FRACTIONS = st.floats(0, 1)
FACTORS = st.sampled_from([-1, 1, 2, 3, 4, 6])

Key = tuple[UUID, int]  # a partition


class ClusterMachine(RuleBasedStateMachine):
    """The controller's decisions, one after the other, and the world that they are about."""

    @initialize(extended=st.booleans())
    def begin(self, extended: bool) -> None:
        self.state = nodes_with(NAMES.values())
        self.new_id = ids()
        self.lives = dict.fromkeys(NAMES, 1)
        self.running = set(NAMES)
        self.size: defaultdict[Key, dict[int, int]] = defaultdict(lambda: dict.fromkeys(NAMES, 0))
        self.committed: defaultdict[Key, int] = defaultdict(int)
        self.reports: list[reassignment.CaughtUp] = []
        self.failed: defaultdict[Key, set[int]] = defaultdict(set)
        self.seen: dict[Key, ReplicaSet] = {}
        self.served: dict[tuple[Key, int], tuple[NodeId, ...]] = {}
        carry_out(self.state, chains.create(self.state, "a"))
        carry_out(self.state, chains.create(self.state, "b", ["b-1", "b-0"]))
        if extended:
            carry_out(self.state, chains.extend(self.state, "b", "b-2"))
        self.create(2, factor=-1, rotate="auto", spread="topic")

    def decide(self, decision: Decision[object]) -> None:
        """Apply, and check each change of a chain against controller.C1 and controller.C2."""
        for record in decision.records:
            before = dict(self.state.chains)
            self.state.apply(decode_record(encode_record(record)))
            for name, chain in self.state.chains.items():
                if name in before and chain is not before[name]:
                    self.check_serving(before[name], chain)
        for record in derived_chains.unused(self.state):
            self.state.apply(decode_record(encode_record(record)))

    def check_serving(self, old: chains.Chain, new: chains.Chain) -> None:
        assert new.version > old.version
        assert (new.epoch > old.epoch) == (new.serving != old.serving)  # model.H3
        news = set(new.serving) - set(old.serving)
        if self.may_join is not None:
            assert {member.node_id for member in news} <= {self.may_join}
        elif news:  # a cold start
            assert {member.node_id for member in news} <= {m.node_id for m in old.serving}
            assert not any(map(self.state.is_live, old.serving))

    may_join: int | None = None  # who may begin to serve by the step that is being taken

    # -- processes

    @rule(node=NODES, noticed=st.booleans())
    def kill(self, node: int, noticed: bool) -> None:
        """It is gone, and the controller knows, or does not know yet."""
        self.running.discard(node)
        if noticed:
            self.decide(brokers.fence(self.state, [NodeId(node)]))

    @rule(node=NODES)
    def suspect(self, node: int) -> None:
        """Its heartbeats are lost, but its process lives."""
        self.decide(brokers.fence(self.state, [NodeId(node)]))

    @rule(node=NODES, kept=FRACTIONS)
    def lose_power(self, node: int, kept: float) -> None:
        """It is gone, and, where others serve, what it had not flushed too."""
        held = {chain.name: any(
            self.runs(member.node_id, member.incarnation) and self.state.is_live(member)
            for member in chain.serving if member.node_id != node)
            for chain in self.state.chain_index.with_node(NodeId(node))}
        self.running.discard(node)
        self.decide(brokers.fence(self.state, [NodeId(node)]))
        for topic, index, partition in self.partitions():
            if all(held.get(name, True) for name in placement.chains_of(partition.placement)) and (
                    partition.own_chain is None):
                sizes = self.size[topic.topic_id, index]
                sizes[node] = int(sizes[node] * kept)

    @rule(node=NODES, ready=st.booleans())
    def start(self, node: int, ready: bool) -> None:
        """A new process; whatever ran before is gone."""
        self.running.add(node)
        self.lives[node] += 1
        for nodes in self.failed.values():
            nodes.discard(node)
        self.decide(register(self.state, node, NAMES[node], self.lives[node]))
        if ready:
            self.unfence(node)

    @rule(node=NODES)
    def unfence(self, node: int) -> None:
        broker = self.state.brokers[NodeId(node)]
        if self.runs(node, broker.incarnation):
            self.decide(brokers.unfence(self.state, broker.node_id, broker.epoch))

    @rule(node=NODES)
    def step_back(self, node: int) -> None:
        broker = self.state.brokers[NodeId(node)]
        if self.runs(node, broker.incarnation):
            self.decide(brokers.step_back(self.state, broker.node_id, broker.epoch))

    @rule(node=NODES)
    def shut_down(self, node: int) -> None:
        broker = self.state.brokers[NodeId(node)]
        if self.runs(node, broker.incarnation):
            self.decide(brokers.stop(self.state, broker.node_id, broker.epoch))
            assert broker.node_id not in self.state.up()
            self.running.discard(node)

    @rule()
    def cold_wait_over(self) -> None:
        self.decide(chains.reconcile(self.state, chains.cold(self.state)))
        assert not chains.cold(self.state)

    @rule(name=CHAINS)
    def heal(self, name: str) -> None:
        """All nodes come back; after that the chain has a head, and no member is offline."""
        for node in self.state.chains[name].nodes:
            if node not in self.running or self.state.brokers[node].stopping:
                self.start(node, ready=False)
            self.unfence(node)
        chain = self.state.chains[name]
        assert self.state.leader_of(chain) != NO_NODE
        assert not chain.within(MemberState.OFFLINE)

    # -- chains

    @rule()
    def extend(self) -> None:
        if self.state.chain_of(NodeId(6)) is None:
            self.decide(chains.extend(self.state, "b", "b-2"))

    @rule(number=st.integers(0, 20))
    def sync_and_promote_in_a_derived_chain(self, number: int) -> None:
        derived = self.state.chain_index.derived()
        if derived:
            self.sync_and_promote(derived[number % len(derived)].name)

    @rule(name=CHAINS)
    def sync_and_promote(self, name: str) -> None:
        """Someone catches up with the tail, which waits for it from then on."""
        chain = self.state.chains[name]
        syncing = chain.within(MemberState.SYNCING)
        if not self.all_run(chain.serving) or not self.all_run(syncing) or not syncing:
            return
        node = syncing[0].node_id
        for topic, index in self.state.partitions_on(name):
            key = (topic.topic_id, index)
            if not self.establish(key):
                return
            self.size[key][node] = self.committed[key]
        mark = self.state.chain_mark(name)
        for wrong in (*chain.nodes, NodeId(99)):
            assert wrong == node or not self.promotes(name, wrong, mark)
        assert not self.promotes(name, node, mark - 1)
        if not all(map(self.state.is_live, (*chain.serving, syncing[0]))):
            assert not self.promotes(name, node, mark)
            return
        self.may_join = node
        self.decide(chains.promote(self.state, name, node, mark))
        self.may_join = None
        assert self.state.chains[name].serving[-1].node_id == node

    def promotes(self, name: str, node: NodeId, mark: int) -> bool:
        try:
            chains.promote(self.state, name, node, mark)
        except RequestError:
            return False
        return True

    # -- logs that fail

    @rule(node=NODES, partitions=st.sets(st.integers(0, 3), min_size=1))
    def fail(self, node: int, partitions: set[int]) -> None:
        """Logs of a process cannot be used any more."""
        for topic, index, partition in self.partitions():
            if index in partitions and node in partition.replicas and node in self.running:
                self.failed[topic.topic_id, index].add(node)
        self.report(node)

    @rule(node=NODES)
    def report(self, node: int) -> None:
        """A heartbeat."""
        broker = self.state.brokers[NodeId(node)]
        if self.runs(node, broker.incarnation) and not broker.fenced:
            self.decide(failed_replicas.report(self.state, NodeId(node), {
                key for key, nodes in self.failed.items() if node in nodes}))

    @rule(node=NODES, kept=FRACTIONS)
    def open_again(self, node: int, kept: float) -> None:
        """Its logs are opened again: all of what they had where it serves alone, else any part."""
        for key, nodes in self.failed.items():
            partition = self.state.find_partition(key)
            if node not in nodes or partition is None:
                continue
            serving = partition.replica_set.serving
            if node in serving and len(serving) > 1:
                continue  # the controller does not know yet
            nodes.discard(node)
            if node not in serving:
                self.size[key][node] = int(self.size[key][node] * kept)
        self.report(node)

    @rule()
    def sync_and_attach(self) -> None:
        """Whoever syncs with a detached partition catches up."""
        for key, place in self.state.detached_partitions():
            partition = self.state.find_partition(key)
            assert partition is not None
            assert place.own_chain is not None
            syncing = place.own_chain.within(MemberState.SYNCING)
            if not syncing or not self.path_runs(partition.replica_set) or not self.establish(key):
                continue
            node, version = syncing[0].node_id, partition.partition_epoch
            self.size[key][node] = self.committed[key]
            for wrong in ((node, version - 1), (NodeId(99), version)):
                assert failed_replicas.promote(self.state, key, *wrong).records == []
            self.decide(failed_replicas.promote(self.state, key, node, version))

    @rule(name=CHAINS)
    def all_is_well(self, name: str) -> None:
        """Everybody is back and every log is open: in the end no partition is detached."""
        self.heal(name)
        for _ in range(8):
            for node in self.state.chains[name].nodes:
                self.open_again(node, 1.0)
            self.cold_wait_over()
            self.sync_and_promote(name)
            self.sync_and_attach()
        if self.all_run(self.state.chains[name].members):
            assert not [key for key, place in self.state.detached_partitions()
                        if place.chain == name and place.moving_to is None]

    @rule()
    def elect_preferred(self) -> None:
        self.decide(elections.elect(self.state, ElectionType.PREFERRED, None))
        for name in {on_chain(partition).chain for _, _, partition in self.partitions()
                     if partition.own_chain is None}:
            chain = self.state.chains[name]
            first = chain.find(self.state.chain_index.preferred(name)[0])
            assert first is not None
            serves = first.state is MemberState.SERVING and self.state.is_live(first)
            assert (chain.head == first) >= serves

    # -- topics and moves

    @rule(count=st.integers(1, 3), factor=FACTORS, rotate=st.sampled_from(["auto", "true"]),
          spread=st.sampled_from(["topic", "partition"]))
    def create(self, count: int, factor: int, rotate: str, spread: str) -> None:
        self.decide(topics.create_topics(self.state, [topics.NewTopic(
            "t", count, factor, configs=[("chain.rotate", rotate), ("chain.spread", spread)])],
            BrokerSettings(), self.new_id))

    @rule(nodes=st.lists(NODES, min_size=1, unique=True))
    def create_by_hand(self, nodes: list[int]) -> None:
        self.decide(topics.create_topics(
            self.state, [topics.NewTopic("t", assignments=[(0, nodes), (1, nodes[::-1])])],
            BrokerSettings(), self.new_id))

    @rule()
    def delete(self) -> None:
        self.decide(topics.delete_topics(self.state, [("t", ZERO_UUID)], BrokerSettings()))

    @rule()
    def add_a_partition(self) -> None:
        have = len(self.state.topics["t"].partitions) if "t" in self.state.topics else 9
        wanted = topics.NewPartitions("t", min(have + 1, 4))
        self.decide(topics.create_partitions(self.state, [wanted], BrokerSettings()))

    @rule(partitions=st.sets(st.integers(0, 3), min_size=1), back=st.booleans())
    def move(self, partitions: set[int], back: bool) -> None:
        """To the other chain, or back."""
        wanted = []
        for _, index, partition in self.partitions():
            if index in partitions:
                to = self.state.chains["b" if 1 in partition.replicas else "a"].nodes
                wanted.append(reassignment.Reassignment("t", index, None if back else to))
        self.decide(reassignment.alter(self.state, wanted))

    @rule(back=st.integers(0, 3), write=st.booleans(), times=st.integers(1, 2))
    def catch_up(self, back: int, write: bool, times: int) -> None:
        """Moving partitions are copied to all live nodes; reports may come late, and twice."""
        for _ in range(times):
            for topic, index, partition in self.partitions():
                key, replicas = (topic.topic_id, index), partition.replica_set
                if partition.moving_to and self.path_runs(replicas) and self.establish(key):
                    for node in replicas.path:
                        self.size[key][node] = self.committed[key]
                    self.reports.append(reassignment.CaughtUp(*key, replicas.version))
            if write:
                self.write()
            for report in self.reports[-1 - back:len(self.reports) - back] * 2:
                self.decide(reassignment.advance(self.state, [report]))

    # -- records

    @rule()
    def write(self) -> None:
        """One record to each partition that takes it, acknowledged by all who serve."""
        for topic, index, partition in self.partitions():
            key = (topic.topic_id, index)
            if partition.leader != NO_NODE and self.establish(key):
                self.committed[key] += 1
                for node in partition.isr:
                    self.size[key][node] = self.committed[key]

    def establish(self, key: Key) -> bool:
        """Whoever serves runs, and has what the longest of them has: the epoch has begun."""
        partition = self.state.topics_by_id[key[0]].partitions[key[1]]
        place, replicas = on_chain(partition), partition.replica_set
        here = place.own_chain or self.state.chains[place.chain]
        there = self.state.chains[place.moving_to].serving if place.moving_to else ()
        serving = [member for member in (*here.serving, *there)
                   if member.node_id in replicas.serving]
        if not self.all_run(serving) or any(
                node in self.failed[key] for node in replicas.path):
            return False
        longest = max(self.size[key][node] for node in replicas.serving)
        assert longest >= self.committed[key], "an acknowledged record is lost"
        self.committed[key] = longest
        for node in replicas.serving:
            self.size[key][node] = longest
        return True

    # -- what the world looks like

    def runs(self, node: int, life: UUID) -> bool:
        return node in self.running and life == incarnation(node, self.lives[node])

    def all_run(self, members: tuple[chains.ChainMember, ...] | list[chains.ChainMember]) -> bool:
        return all(self.runs(member.node_id, member.incarnation) for member in members)

    def path_runs(self, replicas: ReplicaSet) -> bool:
        up = self.state.up()
        return all(node in up and self.runs(node, up[node].incarnation) for node in replicas.path)

    def partitions(self) -> list[tuple[Topic, int, PartitionState]]:
        return [(topic, index, partition) for topic in self.state.topics.values()
                for index, partition in enumerate(topic.partitions)]

    # -- what must hold

    @invariant()
    def chains_rest(self) -> None:
        """controller.C3: nothing is left to reconcile."""
        assert chains.reconcile(self.state).records == []
        for key, place in self.state.detached_partitions():
            assert place.own_chain is not None
            assert place.failed or set(place.own_chain.members) != set(
                self.state.chains[place.chain].members), key

    @invariant()
    def a_node_is_in_one_chain(self) -> None:
        """V4, controller.S7."""
        operators = self.state.chain_index.operators()
        members = [node for chain in operators for node in chain.nodes]
        assert len(members) == len(set(members))
        for chain in operators:
            assert all(self.state.chain_of(node) is chain for node in chain.nodes)

    @invariant()
    def partitions_follow_their_chains(self) -> None:
        """controller.P1, controller.P2, controller.P3: and what Kafka's words mean here."""
        for topic, index, partition in self.partitions():
            replicas = self.state.replica_set(topic.name, index)
            head = (partition.own_chain or self.state.chains[on_chain(partition).chain]).head
            assert partition.leader == (head.node_id if self.state.is_live(head) else NO_NODE)
            assert sorted(partition.replicas) == sorted(replicas.replicas)
            assert partition.isr == replicas.serving
            assert (partition.leader_epoch, partition.partition_epoch) == (
                replicas.epoch, replicas.version)
            assert partition.leader in (NO_NODE, replicas.head)

    @invariant()
    def epochs_only_grow(self) -> None:
        """model.H3, controller.S6: for every partition through all of its moves."""
        for topic, index, partition in self.partitions():
            key, now = (topic.topic_id, index), partition.replica_set
            before = self.seen.get(key, now)
            assert now.epoch >= before.epoch
            assert now == before or now.version > before.version
            assert self.served.setdefault((key, now.epoch), now.serving) == now.serving
            assert now.epoch < self.state.next_epoch
            assert now.version < self.state.next_version
            self.seen[key] = now

    @invariant()
    def a_snapshot_gives_the_same_state(self) -> None:
        """controller.S5, controller.P1: what was derived step by step is what
        follows from the whole.
        """
        restored = ClusterState()
        for record in records_of(self.state):
            restored.apply(decode_record(encode_record(record)))
        assert restored == self.state


TestClusterMachine = ClusterMachine.TestCase
TestClusterMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

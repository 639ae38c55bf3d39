"""Brokers, and the chains that they are members of: values that the state is made of.

A chain is an operator's or derived.  An operator's chain has the nodes `<chain>-<number>`, and its
preferred order is that of their numbers.  A *derived chain* is made by the controller for
partitions whose replicas are other nodes, or the same nodes in another order (derived_chains.py):
it has its own members, states, epoch and version, and says itself which order is preferred.

Invariants
    model.H1 to model.H3 hold for each chain

Not here: where partitions are (placement.py), topics (topic_state.py).
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from quipu.model.chains import MemberState, ReplicaMember, ReplicaSet
from quipu.model.ids import ZERO_UUID, Epoch, NodeId
from quipu.model.listeners import DEFAULT, ListenerEndpoint

NO_CHAIN: Final = ""  # the name of no chain: a chain's name is not empty


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    """A broker that has registered."""

    node_id: NodeId
    host: str
    port: int
    rack: str | None
    name: str = ""
    peer_host: str = ""
    peer_port: int = 0
    incarnation: UUID = ZERO_UUID  # of the process
    epoch: int = 0  # of the registration: the broker epoch that its requests carry
    fenced: bool = False  # it leads nothing, and chains go on without it
    stopping: bool = False  # it is shutting down, and is fenced until it starts again
    lease_ms: int = 0  # how long it may lead after a heartbeat; 0: it takes its whole session
    directory_id: UUID = ZERO_UUID  # where its logs are
    listeners: tuple[ListenerEndpoint, ...] = ()  # none: PLAINTEXT alone, at host:port
    fenced_at_ms: int = 0  # 0: it is not fenced, or it is not known since when
    given_up: bool = False  # it was fenced for too long, and its replicas go (racks.py)
    metadata_level: int = 0  # which records it can read (controller.R4)

    def endpoint(self, listener: str) -> ListenerEndpoint | None:
        """Where clients reach it by the listener of that name; None if it has no such listener."""
        if not self.listeners and listener == DEFAULT.name:
            return ListenerEndpoint(listener, self.host, self.port)
        return next((each for each in self.listeners if each.listener == listener), None)

    @property
    def process(self) -> "BrokerProcess":
        return BrokerProcess(self.incarnation, self.directory_id)


class BrokerProcess(NamedTuple):
    """A process of a broker, and the data directory that it has."""

    incarnation: UUID
    directory_id: UUID = ZERO_UUID  # zeros: it is not known


class ChainMember(NamedTuple):
    """A node of a chain, its state there, and the process of that node that has this state."""

    node_id: NodeId
    state: MemberState
    incarnation: UUID
    directory_id: UUID = ZERO_UUID  # of that process

    @property
    def process(self) -> BrokerProcess:
        return BrokerProcess(self.incarnation, self.directory_id)

    def under(self, process: BrokerProcess) -> "ChainMember":
        """The same member in the same state, but another process."""
        return self._replace(incarnation=process.incarnation, directory_id=process.directory_id)

    def has_directory_of(self, process: BrokerProcess) -> bool:
        """Has `process` the data directory of this member's process, as far as is known?"""
        return ZERO_UUID in (self.directory_id, process.directory_id) or (
            self.directory_id == process.directory_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """A chain at one moment."""

    name: str
    epoch: Epoch
    version: int
    members: tuple[ChainMember, ...]
    order: tuple[NodeId, ...] = ()  # of a derived chain: its nodes in the order that is preferred
    replica_set: ReplicaSet = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "replica_set", ReplicaSet(
            epoch=self.epoch, version=self.version,
            members=tuple(ReplicaMember(member.node_id, member.state) for member in self.members)))

    @property
    def is_derived(self) -> bool:
        """Whether the controller made it for some partitions; else it is an operator's chain."""
        return bool(self.order)

    @property
    def serving(self) -> tuple[ChainMember, ...]:
        return self.within(MemberState.SERVING)

    @property
    def head(self) -> ChainMember:
        return self.members[0]

    @property
    def nodes(self) -> tuple[NodeId, ...]:
        """Every member, offline ones included."""
        return self.replica_set.replicas

    def within(self, state: MemberState) -> tuple[ChainMember, ...]:
        return tuple(member for member in self.members if member.state is state)

    def find(self, node_id: NodeId) -> ChainMember | None:
        return next((member for member in self.members if member.node_id == node_id), None)

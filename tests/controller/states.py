"""States to decide on, for tests of the controller."""

from collections.abc import Callable, Iterable
from typing import TypeVar, assert_never
from uuid import UUID

from quipu.controller import brokers, chains
from quipu.controller.brokers import Registration
from quipu.controller.decision import Decision
from quipu.controller.placement import ChainPlacement, DisklessPlacement, LegacyPlacement
from quipu.controller.records import ClusterCreated, Record, decode_record, encode_record
from quipu.controller.state import ClusterState
from quipu.controller.topic_state import PartitionState
from quipu.model.chains import MemberState
from quipu.model.ids import NodeId

Result = TypeVar("Result")
LETTERS = {MemberState.SERVING: "", MemberState.SYNCING: "~", MemberState.OFFLINE: "!"}


def carry_out(state: ClusterState, decision: Decision[Result]) -> list[Result]:
    """Apply a decision, as it is read from the metadata log, and return its results."""
    for record in decision.records:
        state.apply(decode_record(encode_record(record)))
    return decision.results


def incarnation(node_id: int, life: int = 1) -> UUID:
    """The process of a node in its first, second, ... life."""
    return UUID(int=node_id << 16 | life)


def start(state: ClusterState, node_id: int, name: str, life: int = 1) -> None:
    """A node's process starts, registers and is ready."""
    (broker,) = carry_out(state, register(state, node_id, name, life))
    carry_out(state, brokers.unfence(state, broker.node_id, broker.epoch))


def stop(state: ClusterState, node_id: int) -> None:
    """No heartbeats of a node come any more."""
    carry_out(state, brokers.fence(state, [NodeId(node_id)]))


def register(
    state: ClusterState, node_id: int, name: str, life: int = 1
) -> Decision[brokers.BrokerState]:
    return brokers.register(state, Registration(
        node_id=NodeId(node_id), name=name, incarnation=incarnation(node_id, life),
        host=f"host-{node_id}", port=9092, peer_host=f"peer-{node_id}", peer_port=9093),
        quiet=True)


def nodes_with(names: Iterable[str]) -> ClusterState:
    """Nodes 1, 2, 3 and so on with these names, all up, and no chain."""
    state = ClusterState()
    state.apply(ClusterCreated(cluster_id="cluster-of-tests"))
    for node_id, name in enumerate(names, 1):
        start(state, node_id, name)
    return state


def state_with(*records: Record, **lengths: int) -> ClusterState:
    """Chains of these names and lengths, `a=1` unless others are given; and then `records`.

    Nodes are numbered from 1 on, in the order of the chains.
    """
    lengths = lengths or {"a": 1}
    state = nodes_with(f"{name}-{number}" for name, length in lengths.items()
                       for number in range(length))
    for name in lengths:
        carry_out(state, chains.create(state, name))
    for record in records:
        state.apply(record)
    return state


def shape(state: ClusterState, name: str = "a") -> str:
    """A chain in short: `1 2 ~3 !4` has 1 and 2 serving, 3 syncing, 4 offline."""
    return " ".join(f"{LETTERS[member.state]}{member.node_id}"
                    for member in state.chains[name].members)


def on_chain(partition: PartitionState) -> ChainPlacement:
    """The placement of a partition that is on a chain."""
    assert isinstance(partition.placement, ChainPlacement)
    return partition.placement


def chain_name(partition: PartitionState) -> str:
    """The chain that a partition is on; nothing for one on no chain."""
    match partition.placement:
        case ChainPlacement(chain=name):
            return name
        case LegacyPlacement() | DisklessPlacement():
            return ""
        case _:
            assert_never(partition.placement)


def ids() -> Callable[[], UUID]:
    """UUIDs 1, 2, 3 and so on."""
    last = 0

    def following() -> UUID:
        nonlocal last
        last += 1
        return UUID(int=last)

    return following

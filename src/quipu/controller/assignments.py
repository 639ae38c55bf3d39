"""The nodes of each partition of a request, in their order: named by the client, or chosen here.

A topic goes to the operator's chain that the placer chooses, or its partitions go round several
(`chain.spread`).  Of its chain a partition gets all nodes, or as many as its replication factor
says:

    fixed      chain 1 2 3     partitions on 1 2 3 | 1 2 3 | 1 2 3       factor 2: 1 2 | 1 2 | 1 2
    rotated                                  1 2 3 | 2 3 1 | 3 1 2                 1 2 | 2 3 | 3 1

Rotated (`chain.rotate`), each node is the head of as many partitions as any other, and the tail, so
all of them carry writes and reads.  A topic begins with the next node after that of the topic
before it, so that this holds for topics of one partition too.

Not here: the chain that partitions on a list of nodes are on (derived_chains.py).
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, assert_never

from quipu.controller.derived_chains import DerivedChains, Order
from quipu.controller.members import Chain
from quipu.controller.placement import ChainPlacement, DisklessPlacement, LegacyPlacement
from quipu.controller.placer import ChainPlacer
from quipu.controller.state import ClusterState
from quipu.controller.topic_requests import (
    USE_DEFAULT,
    Assignment,
    NewPartitions,
    NewTopic,
    assigned_in_order,
)
from quipu.controller.topic_state import Topic
from quipu.model.errors import Code, RequestError
from quipu.model.ids import NodeId
from quipu.model.settings import BrokerSettings, TopicSettings
from quipu.model.topic_settings import ROTATE_AUTO, ROTATE_ON, SPREAD_PARTITIONS
from quipu.model.topics import PARTITION_COUNT_MAX, is_internal

WHOLE: Final = 0  # the replication factor that means all nodes of the chain


class _Way(NamedTuple):
    """How the partitions of one topic are laid out."""

    chains: Sequence[Chain]  # partitions go round them
    factor: int  # replicas of a partition; WHOLE: as many as its chain has nodes
    rotate: bool
    start: int = 0  # the turn of the first partition


# -- named by the client


def manual_orders(state: ClusterState, wanted: NewTopic, derived: DerivedChains) -> list[Order]:
    """The nodes of each partition that the request assigns to brokers itself."""
    ordered = assigned_in_order(wanted)
    return assigned_orders(state, ordered, len(ordered[0]), derived)


def assigned_orders(
    state: ClusterState, assignments: Sequence[Assignment], replicas: int, derived: DerivedChains
) -> list[Order]:
    """The lists of nodes that a client has named, as it has named them."""
    assert assignments, "partitions to assign"
    if not state.chain_index.operators():
        raise RequestError(f"a manual assignment: {chains_in_words(state)}",
                           code=Code.INVALID_REPLICA_ASSIGNMENT)
    orders = [_checked_order(state, brokers, replicas) for brokers in assignments]
    why = derived.why_not(orders)
    if why is None:
        return orders
    whole = {frozenset(chain.nodes): chain for chain in state.chain_index.operators()}
    found = [whole.get(frozenset(order)) for order in orders]
    if None in found:
        raise RequestError(f"a manual assignment {list(orders[found.index(None)])}: {why}",
                           code=Code.INVALID_REPLICA_ASSIGNMENT)
    return [state.chain_index.preferred(chain.name) for chain in found if chain is not None]


def _checked_order(state: ClusterState, brokers: Assignment, replicas: int) -> Order:
    order = tuple(map(NodeId, brokers))
    if not order:
        problem = "is empty"
    elif len(set(order)) != len(order):
        problem = f"{list(order)} names a broker twice"
    elif len(order) != replicas:
        problem = f"{list(order)} does not have {replicas} replicas as the others do"
    elif unknown := [node_id for node_id in order if node_id not in state.brokers]:
        problem = f"{list(order)} names broker {unknown[0]}, which is not registered"
    elif not any(map(state.is_up, order)):
        problem = f"{list(order)} names only brokers that are down"
    else:
        return order
    raise RequestError(f"a manual assignment {problem}", code=Code.INVALID_REPLICA_ASSIGNMENT)


def chains_in_words(state: ClusterState) -> str:
    """The operators' chains, for an error message."""
    chains = {chain.name: chain for chain in state.chain_index.operators()}
    if not chains:
        return "there is no chain yet: quipu chain create"
    return "there are " + ", ".join(
        f"{name} {sorted(chains[name].nodes)}" for name in sorted(chains))


# -- chosen here


def automatic_orders(
    state: ClusterState, wanted: NewTopic, settings: BrokerSettings, topic: TopicSettings,
    *, placer: ChainPlacer, derived: DerivedChains,
) -> list[Order]:
    """The nodes of each partition of a topic whose request leaves that to the controller."""
    assert not wanted.assignments, wanted
    factor = WHOLE if is_internal(wanted.name) else _factor(wanted.replication_factor, settings)
    count = wanted.partition_count
    count = settings.num_partitions if count == USE_DEFAULT else count
    if count < 1:
        raise RequestError(f"{count} partitions: there must be one at least, or -1 for the default",
                           code=Code.INVALID_PARTITIONS)
    check_count(count)
    if is_internal(wanted.name):
        chains = sorted(_carriers(state, WHOLE), key=lambda chain: chain.name)
        way = _Way(chains, WHOLE, rotate=_rotates(topic, chains, WHOLE))
        return _orders(state, way, range(count), derived)
    chains = _carriers(state, factor)
    if topic.chain_spread == SPREAD_PARTITIONS:
        chains = placer.rank(chains)[:count]
    else:
        chains = [placer.choose(chains)]
    way = _Way(chains, factor, rotate=_rotates(topic, chains, factor),
               start=placer.planned(chains[0]))
    return _orders(state, way, range(count), derived)


def added_orders(
    state: ClusterState, topic: Topic, wanted: NewPartitions, settings: TopicSettings,
    *, placer: ChainPlacer, derived: DerivedChains,
) -> list[Order]:
    """The nodes of each partition that a topic gets besides those that it has."""
    numbers = range(len(topic.partitions), wanted.total)
    assert numbers, (topic.name, wanted)
    assert topic.partitions, topic.name  # controller.S3
    if wanted.assignments is not None:
        if len(wanted.assignments) != len(numbers):
            raise RequestError(
                f"{len(numbers)} partitions would be added, but {len(wanted.assignments)} "
                "assignments are given", code=Code.INVALID_REPLICA_ASSIGNMENT)
        return assigned_orders(state, wanted.assignments, topic.replication_factor, derived)
    placement = topic.partitions[0].placement
    match placement:
        case LegacyPlacement():
            raise RequestError(f"topic {topic.name} is on no chain yet: quipu chain create",
                               code=Code.INVALID_REPLICATION_FACTOR)
        case DisklessPlacement():
            raise AssertionError(f"{topic.name} is diskless: see diskless.added")
        case ChainPlacement():
            first = state.chains[placement.moving_to or placement.chain]
            return _orders(state, _same_way(state, first, settings, placer), numbers, derived)
        case _:
            assert_never(placement)


def _same_way(
    state: ClusterState, first: Chain, settings: TopicSettings, placer: ChainPlacer
) -> _Way:
    """How more partitions are laid out if partition 0 is on `first`."""
    order = state.chain_index.preferred(first.name)
    parent = state.chain_index.parent_of(first)
    if parent is None:  # nodes of several chains: the client has named them
        return _Way([first], WHOLE, rotate=settings.chain_rotate == ROTATE_ON)
    chain = state.chains[parent]
    factor = WHOLE if len(order) == len(chain.nodes) else len(order)
    chains = [chain]
    if settings.chain_spread == SPREAD_PARTITIONS:
        others = [each for each in _carriers(state, len(order)) if each.name != parent]
        chains += placer.rank(others) if others else []
    return _Way(chains, factor, rotate=_rotates(settings, chains, factor),
                start=state.chain_index.preferred(parent).index(order[0]))


def _orders(
    state: ClusterState, way: _Way, numbers: range, derived: DerivedChains
) -> list[Order]:
    """The nodes of the partitions with these numbers; on whole chains if they must be."""
    made: dict[tuple[str, int], Order] = {}
    orders = []
    for number in numbers:
        turns, place = divmod(number, len(way.chains))
        chain = way.chains[place]
        nodes = _nodes(state, chain, way.factor)
        turn = (way.start + turns) % len(nodes) if way.rotate else 0
        orders.append(made.get((chain.name, turn)) or made.setdefault(
            (chain.name, turn), _order(state, nodes, way.factor, turn)))
    why = derived.why_not(made.values())
    if why is None:
        return orders
    short = [chain for chain in way.chains if len(chain.nodes) < way.factor]
    if short:
        raise RequestError(
            f"replication factor {way.factor}: the longest chain has {len(short[0].nodes)} nodes, "
            f"and {why}", code=Code.INVALID_REPLICATION_FACTOR)
    return [state.chain_index.preferred(way.chains[number % len(way.chains)].name)
            for number in numbers]


def _nodes(state: ClusterState, chain: Chain, factor: int) -> Order:
    """The nodes of `chain`, and, if it is too short, all others after them."""
    nodes = state.chain_index.preferred(chain.name)
    return nodes if factor <= len(nodes) else (
        *nodes, *sorted(state.brokers.keys() - {*nodes}))


def _order(state: ClusterState, nodes: Order, factor: int, turn: int) -> Order:
    """`factor` of these nodes, from the one at `turn` on."""
    order = nodes[turn:] + nodes[:turn]
    if factor not in (WHOLE, len(nodes)):  # nodes that are up before those that are down
        order = tuple(sorted(order, key=lambda node_id: not state.is_up(node_id)))[:factor]
    assert len(set(order)) == len(order) == (factor or len(nodes)), (nodes, factor, order)
    return order


def _rotates(settings: TopicSettings, chains: Sequence[Chain], factor: int) -> bool:
    """Whether partitions have different orders; parts of chains have unless that is turned off."""
    if settings.chain_rotate == ROTATE_AUTO:
        return factor not in (WHOLE, *(len(chain.nodes) for chain in chains))
    return settings.chain_rotate == ROTATE_ON


def _factor(wanted: int, settings: BrokerSettings) -> int:
    if wanted < 1 and wanted != USE_DEFAULT:
        raise RequestError(
            f"replication factor {wanted}: it must be 1 at least, or -1 for the default",
            code=Code.INVALID_REPLICATION_FACTOR)
    return settings.default_replication_factor if wanted == USE_DEFAULT else wanted


def _carriers(state: ClusterState, factor: int) -> list[Chain]:
    """The operators' chains that can carry `factor` replicas: the shortest of them.

    If all are too short, the longest ones; other nodes have to help.
    """
    chains = state.chain_index.operators()
    if not chains:
        raise RequestError("there is no chain yet: quipu chain create",
                           code=Code.INVALID_REPLICATION_FACTOR)
    if factor == WHOLE:
        return chains
    if factor > len(state.brokers):
        raise RequestError(
            f"replication factor {factor}: only {len(state.brokers)} brokers are registered; "
            "-1 means as many as a chain has", code=Code.INVALID_REPLICATION_FACTOR)
    lengths = {len(chain.members) for chain in chains}
    length = min((each for each in lengths if each >= factor), default=max(lengths))
    return [chain for chain in chains if len(chain.members) == length]


def check_count(count: int) -> None:
    if count > PARTITION_COUNT_MAX:
        raise RequestError(f"{count} partitions: a topic may have {PARTITION_COUNT_MAX} at most",
                           code=Code.POLICY_VIOLATION)

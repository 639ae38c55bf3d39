"""Which chains the partitions of a request are assigned to: by the client, or by the placer.

A topic's partitions are on one chain, and have as many replicas as that has nodes; a manual
assignment must name the nodes of a chain.  The cluster's own topics are spread over all chains.
"""

from collections.abc import Sequence
from typing import assert_never

from quipu.controller.members import Chain
from quipu.controller.placement import ChainPlacement, DisklessPlacement, LegacyPlacement
from quipu.controller.placer import ChainPlacer, spread
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
from quipu.model.settings import BrokerSettings
from quipu.model.topics import PARTITION_COUNT_MAX, is_internal


def manual_assignments(state: ClusterState, wanted: NewTopic) -> list[Chain]:
    """The chain of each partition that the request assigns to brokers itself."""
    ordered = assigned_in_order(wanted)
    return _assigned_chains(state, ordered, len(ordered[0]))


def _assigned_chains(
    state: ClusterState, assignments: Sequence[Assignment], replicas: int
) -> list[Chain]:
    """The chains that the assignments name by their nodes."""
    assert assignments, "partitions to assign"
    found = {frozenset[int](chain.nodes): chain for chain in state.chains.values()}
    chains = []
    for brokers in assignments:
        if not brokers:
            problem = "is empty"
        elif len(set(brokers)) != len(brokers):
            problem = f"{list(brokers)} names a broker twice"
        elif len(brokers) != replicas:
            problem = f"{list(brokers)} does not have {replicas} replicas as the others do"
        elif unknown := [node for node in brokers if node not in state.brokers]:
            problem = f"{list(brokers)} names broker {unknown[0]}, which is not registered"
        elif (chain := found.get(frozenset(brokers))) is None:
            problem = f"{list(brokers)} is no chain; {chains_in_words(state)}"
        else:
            chains.append(chain)
            continue
        raise RequestError(f"a manual assignment {problem}", code=Code.INVALID_REPLICA_ASSIGNMENT)
    assert len(chains) == len(assignments), (chains, assignments)
    assert all(len(chain.members) == replicas for chain in chains), (chains, replicas)
    return chains


def chains_in_words(state: ClusterState) -> str:
    """The chains that exist, for an error message."""
    if not state.chains:
        return "there is no chain yet: quipu chain create"
    return "there are " + ", ".join(
        f"{name} {sorted(state.chains[name].nodes)}" for name in sorted(state.chains))


def automatic_assignments(
    state: ClusterState, wanted: NewTopic, settings: BrokerSettings, placer: ChainPlacer
) -> list[Chain]:
    """The chain of each partition of a topic whose request leaves that to the controller."""
    assert not wanted.assignments, wanted
    count, replicas = wanted.partition_count, wanted.replication_factor
    count = settings.num_partitions if count == USE_DEFAULT else count
    if count < 1:
        raise RequestError(f"{count} partitions: there must be one at least, or -1 for the default",
                           code=Code.INVALID_PARTITIONS)
    check_count(count)
    if is_internal(wanted.name):
        return spread(_chains_of_length(state, 0), count)
    if replicas < 1 and replicas != USE_DEFAULT:
        raise RequestError(
            f"replication factor {replicas}: it must be 1 at least, or -1 for the default",
            code=Code.INVALID_REPLICATION_FACTOR)
    if replicas == USE_DEFAULT:
        replicas = settings.default_replication_factor
    chain = placer.choose(_chains_of_length(state, replicas))
    assert state.chains[chain.name] is chain, chain
    assert len(chain.members) == replicas or replicas < 1, (chain, replicas)
    return [chain] * count


def _chains_of_length(state: ClusterState, replicas: int) -> list[Chain]:
    """Chains of that many nodes; with 0, all of them."""
    if not state.chains:
        raise RequestError("there is no chain yet: quipu chain create",
                           code=Code.INVALID_REPLICATION_FACTOR)
    chains = [chain for chain in state.chains.values() if replicas in (0, len(chain.members))]
    if not chains:
        lengths = sorted({len(chain.members) for chain in state.chains.values()})
        raise RequestError(
            f"replication factor {replicas}: a topic has as many replicas as its chain has nodes; "
            f"there are chains of {', '.join(map(str, lengths))}, and -1 means any",
            code=Code.INVALID_REPLICATION_FACTOR)
    return chains


def check_count(count: int) -> None:
    if count > PARTITION_COUNT_MAX:
        raise RequestError(f"{count} partitions: a topic may have {PARTITION_COUNT_MAX} at most",
                           code=Code.INVALID_PARTITIONS)


def added_chains(
    state: ClusterState, topic: Topic, wanted: NewPartitions
) -> Sequence[Chain]:
    """The chain of each partition that a topic gets besides those that it has."""
    added = wanted.total - len(topic.partitions)
    assert added > 0, (topic.name, wanted)
    assert topic.partitions, topic.name  # controller.S3
    if wanted.assignments is None:
        placement = topic.partitions[0].placement
        match placement:
            case LegacyPlacement():
                raise RequestError(f"topic {topic.name} is on no chain yet: quipu chain create",
                                   code=Code.INVALID_REPLICATION_FACTOR)
            case ChainPlacement():
                return [state.chains[placement.moving_to or placement.chain]] * added
            case DisklessPlacement():
                raise AssertionError(f"{topic.name} is diskless: see diskless.added")
            case _:
                assert_never(placement)
    if len(wanted.assignments) != added:
        raise RequestError(
            f"{added} partitions would be added, but {len(wanted.assignments)} "
            "assignments are given", code=Code.INVALID_REPLICA_ASSIGNMENT)
    return _assigned_chains(state, wanted.assignments, topic.replication_factor)

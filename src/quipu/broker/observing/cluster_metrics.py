"""The metrics that say whether the cluster takes writes: by this node's metadata, on every node.

A chain without a leader has no node that could report it, so every node does.  A node that holds
no lease does not know whether its metadata is true: it reports no leader for any chain.  So a chain
has none if no node reports one: alert on the maximum over all nodes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from quipu.broker.observing.metric_tables import Family
from quipu.broker.observing.text_format import labelled, labels_of, single
from quipu.broker.partitions.lease import Lease
from quipu.broker.serving.context import Broker
from quipu.controller.state import ClusterState
from quipu.controller.topic_state import Topic
from quipu.model.chains import MemberState
from quipu.model.ids import NO_NODE

PARTITIONS_SHOWN_MAX: Final = 1000
PAGE_PARTITIONS: Final = 2000  # looked at without a pause

LEASE_HELD: Final = Family(
    "quipu_lease_held", "gauge",
    "1 while this node may lead, because the controller responded to it a moment ago; a node that "
    "has no others always may.")
CHAIN_HAS_LEADER: Final = Family(
    "quipu_chain_has_leader", "gauge",
    "1 if a chain has a leader, as far as this node knows; 0 also while this node holds no lease. "
    "If no node reports 1, the chain takes no writes.", "chain")
CHAIN_MEMBERS: Final = Family(
    "quipu_chain_members", "gauge", "Members of a chain that are serving, syncing or offline.",
    "chain, state")
OFFLINE: Final = Family(
    "quipu_partitions_offline", "gauge",
    "Partitions of the whole cluster that have no leader, as far as this node knows (Kafka's "
    "OfflinePartitionsCount); all that chains hold, while this node holds no lease.")
UNDER_MIN_ISR: Final = Family(
    "quipu_partitions_under_min_isr", "gauge",
    "Partitions that this node leads and that refuse writes, because fewer replicas are in sync "
    "than `min.insync.replicas` says (Kafka's UnderMinIsrPartitionCount).")
PARTITION_UNDER_MIN_ISR: Final = Family(
    "quipu_partition_under_min_isr", "gauge",
    f"1 for such a partition; {PARTITIONS_SHOWN_MAX:,} lines at most.", "topic, partition")
FAMILIES: Final = (LEASE_HELD, CHAIN_HAS_LEADER, CHAIN_MEMBERS, OFFLINE, UNDER_MIN_ISR,
                   PARTITION_UNDER_MIN_ISR)


class ChainStateSample(NamedTuple):
    """A chain of the cluster, as this node knows it."""

    name: str
    has_leader: bool
    members: Mapping[MemberState, int]


class ClusterSample(NamedTuple):
    """What this node knows of the cluster at the moment of a scrape."""

    is_lease_held: bool
    chains: Sequence[ChainStateSample]
    offline_pages: Iterable[int]  # partitions without a leader, in pages of some topics


def cluster_samples(broker: Broker) -> list[ClusterSample]:
    """One sample, of this moment."""
    state, is_held = broker.cluster.state, Lease(broker.cluster, broker.clock).holds()
    chains = [ChainStateSample(
        chain.name, is_held and state.leader_of(chain) != NO_NODE,
        {each: len(chain.within(each)) for each in MemberState})
        for chain in state.chains.values()]
    return [ClusterSample(is_held, chains, offline_pages(state, is_lease_held=is_held))]


def offline_pages(state: ClusterState, *, is_lease_held: bool) -> Iterator[int]:
    """The number of partitions without a leader, in several parts."""
    found = looked_at = 0
    for topic in list(state.topics.values()):
        found += _offline_count(topic, is_lease_held=is_lease_held)
        looked_at += len(topic.partitions)
        if looked_at >= PAGE_PARTITIONS:
            yield found
            found = looked_at = 0
    yield found


def _offline_count(topic: Topic, *, is_lease_held: bool) -> int:
    if not is_lease_held and not topic.is_diskless:  # any broker serves diskless partitions
        return len(topic.partitions)
    return sum(partition.leader == NO_NODE for partition in topic.partitions)


def cluster_lines(samples: Iterable[ClusterSample]) -> Iterator[str]:
    """The metrics of the cluster; nothing while the node starts."""
    for sample in samples:
        yield single(LEASE_HELD, int(sample.is_lease_held))
        yield from labelled(CHAIN_HAS_LEADER, (
            (labels_of(chain=each.name), int(each.has_leader)) for each in sample.chains))
        yield from labelled(CHAIN_MEMBERS, (
            (labels_of(chain=each.name, state=state.name.lower()), count)
            for each in sample.chains for state, count in each.members.items()))
        offline = 0
        for count in sample.offline_pages:
            offline += count
            yield ""  # a pause
        yield single(OFFLINE, offline)


def under_min_isr(partitions: Sequence[tuple[str, int]]) -> Iterator[str]:
    """The partitions that this node leads and that refuse writes."""
    yield single(UNDER_MIN_ISR, len(partitions))
    yield from labelled(PARTITION_UNDER_MIN_ISR, (
        (labels_of(topic=topic, partition=partition), 1)
        for topic, partition in islice(partitions, PARTITIONS_SHOWN_MAX)))

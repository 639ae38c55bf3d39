"""Whether a node serves in its chains, as a condition of its readiness; and warnings about writes.

A member of a chain is ready when it serves, so that a rolling restart continues only after the last
node has caught up: in its operator's chain, and in the derived ones that it is in, for partitions
with another order or other replicas.  A node that is in no chain is ready too.

A node that would refuse writes, because other nodes are away, stays ready: it serves reads, and to
send its clients elsewhere would help none of them.  The response says what it would refuse and why.
"""

from typing import Final

from quipu.broker.cluster import ClusterDriver
from quipu.broker.partitions.lease import Lease
from quipu.broker.partitions.partitions import Partitions
from quipu.controller.derived_chains import words
from quipu.controller.members import Chain
from quipu.model.chains import MemberState
from quipu.model.ids import NO_NODE
from quipu.runtime.clock import Clock

NAMES_MAX: Final = 10  # partitions and chains that a warning names


def chain_trouble(cluster: ClusterDriver) -> str | None:
    """Why this node does not serve in one of its chains; None if it does, or is in none."""
    chains = cluster.state.chain_index.with_node(cluster.node_id)
    chains.sort(key=lambda chain: chain.is_derived)
    return next(filter(None, (_trouble_in(cluster, chain) for chain in chains)), None)


def _trouble_in(cluster: ClusterDriver, chain: Chain) -> str | None:
    node_id, state = cluster.node_id, cluster.state
    member = chain.find(node_id)
    assert member is not None, (node_id, chain)
    if member.state is MemberState.SERVING and member.incarnation == cluster.incarnation and (
            state.is_live(member)):
        return None
    named = words(state, chain)
    if cluster.why_stepped_back is not None:
        return (f"this node is fenced at its own request and does not serve in {named}; "
                f"check its disk and restart it: {cluster.why_stepped_back}")
    if member.state is MemberState.SERVING and not member.has_directory_of(
            state.brokers[node_id].process):
        return (f"this node has another data directory than the one that it served "
                f"{named} with, and waits for a member that has the records: restore that "
                "directory, or hold an unclean election")
    return (f"this node does not serve in {named} yet: it is "
            f"{member.state.name.lower()} and has to catch up")


def failed_logs(partitions: Partitions) -> dict[str, str]:
    """The partitions whose logs have failed here, and their errors."""
    return {str(partition.topic_partition): str(partition.failure)
            for partition in partitions.all() if partition.failure is not None}


def refused_writes(cluster: ClusterDriver, partitions: Partitions, clock: Clock) -> dict[str, str]:
    """Why clients could not write now: partitions of this node, and chains without a leader."""
    led = [each for each in partitions.replicated() if each.is_leader]
    short = [each for each in led if each.shortages[0] is not None]
    found = {}
    if led and not Lease(cluster, clock).holds():
        found["writes"] = (
            f"all {len(led)} partitions that this node leads refuse writes: it has had no response "
            "from the controller for too long; half of the voters or more may be down")
    elif short:
        names = [str(each.topic_partition) for each in short]
        found["writes"] = (f"{len(names)} of {len(led)} partitions that this node leads refuse "
                           f"writes ({_some(names)}): {short[0].shortages[0]}")
    state = cluster.state
    for chain in [each for each in state.chains.values() if state.leader_of(each) == NO_NODE][
            :NAMES_MAX]:
        found[words(state, chain)] = (
            "it has no leader and takes no writes: none of its serving members "
            f"({', '.join(str(member.node_id) for member in chain.serving)}) is up")
    return found


def _some(names: list[str]) -> str:
    more = len(names) - NAMES_MAX
    return ", ".join(names[:NAMES_MAX]) + (f" and {more} more" if more > 0 else "")

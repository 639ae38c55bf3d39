"""Whether a node serves in its chain, as a condition of its readiness.

A member of a chain is ready when it serves, so that a rolling restart continues only after the last
node has caught up.  A node that is in no chain is ready too.
"""

from quipu.broker.cluster import ClusterDriver
from quipu.model.chains import MemberState


def chain_trouble(cluster: ClusterDriver) -> str | None:
    """Why this node does not serve in its chain; None if it does, or is in no chain."""
    node_id, state = cluster.node_id, cluster.state
    chain = state.chain_of(node_id)
    member = chain.find(node_id) if chain is not None else None
    if chain is None or member is None:
        return None
    if member.state is MemberState.SERVING and state.is_part(node_id, cluster.incarnation):
        return None
    if cluster.why_stepped_back is not None:
        return (f"this node is fenced at its own request and does not serve in chain {chain.name}; "
                f"check its disk and restart it: {cluster.why_stepped_back}")
    if member.state is MemberState.SERVING and not member.has_directory_of(
            state.brokers[node_id].process):
        return (f"this node has another data directory than the one that it served chain "
                f"{chain.name} with, and waits for a member that has the records: restore that "
                "directory, or hold an unclean election")
    return (f"this node does not serve in chain {chain.name} yet: it is "
            f"{member.state.name.lower()} and has to catch up")

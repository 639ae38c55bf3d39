"""A node's readiness follows its part in its chain.

A member of a chain is ready when it serves there, so that whoever restarts nodes one after the
other goes on only when the last one has caught up.  A node that is in no chain is ready: it does
everything that it was asked to do.
"""

from quipu.broker.cluster import Cluster
from quipu.model.chains import MemberState


def chain_trouble(cluster: Cluster) -> str | None:
    """Why this node does not do its part in its chain; None if it does, or has none."""
    node_id, state = cluster.node_id, cluster.state
    chain = state.chain_of(node_id)
    member = chain.find(node_id) if chain is not None else None
    if chain is None or member is None:
        return None
    if member.state is MemberState.SERVING and state.is_part(node_id, cluster.incarnation):
        return None
    if cluster.why_stepped_back is not None:
        return (f"this node has stepped back from chain {chain.name} and must be restarted, or its "
                f"disk looked at: {cluster.why_stepped_back}")
    if member.state is MemberState.SERVING and not member.has_directory_of(
            state.brokers[node_id].process):
        return (f"this node has another data directory than the one that it served chain "
                f"{chain.name} with, and waits for a member that has the records: bring that "
                "directory back, or hold an unclean election")
    return (f"this node does not serve in chain {chain.name} yet: it is "
            f"{member.state.name.lower()} and has to catch up")

"""The cluster as one node knows it, and the only way to change it.

    driver        `Cluster`: what the rest of the broker sees
    membership    this node's life: it registers, is heard of, has a lease, leaves
    link, desk    the way to the controller from any node, and the controller's side of it
    requests      what nodes ask of the controller, as bytes
    changes       on the controller: what it can be asked to change
    liveness      on the controller: who is alive, and what follows for chains
    decisions     on the controller: one decision after the other, answered when it holds
    listing       which brokers clients are told of
    reports       members that have caught up, on their way to the controller
    machine       the state that the quorum replicates; telling: who hears of its changes

Start with driver.  Not here: what is decided (controller/), how nodes agree (broker/quorum).
"""

from quipu.broker.cluster.driver import LOG_CONFIG, LOG_NAME, Cluster
from quipu.broker.cluster.membership import Endpoints
from quipu.broker.cluster.telling import ClusterListener

__all__ = ["LOG_CONFIG", "LOG_NAME", "Cluster", "ClusterListener", "Endpoints"]

"""The cluster as one node knows it, and the only way to change it.

    driver        `Cluster`: what the rest of the broker sees
    decisions     on the controller: one decision after the other, answered when it holds
    desk, link    the controller's side of a request, and the way to it from any node
    requests      what nodes ask of the controller, as bytes
    machine       the state that the quorum replicates; telling: who hears of its changes

Start with driver.  Not here: what is decided (controller/), how nodes agree (broker/quorum).
"""

from quipu.broker.cluster.alone import CommandLog
from quipu.broker.cluster.driver import LOG_CONFIG, LOG_NAME, Cluster
from quipu.broker.cluster.telling import ClusterListener

__all__ = ["LOG_CONFIG", "LOG_NAME", "Cluster", "ClusterListener", "CommandLog"]

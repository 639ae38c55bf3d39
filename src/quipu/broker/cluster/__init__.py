"""The cluster's metadata on this node, and the requests that change it.

On every node
    driver.py              `ClusterDriver`: what the rest of the broker uses of this room
    membership.py          this node's registration, heartbeats, lease and controlled shutdown
    controller_channel.py  sends every request to the controller, whichever node that is
    requests.py            the messages from nodes to the controller
    migrations.py          how far migrations to diskless topics are
    caught_up.py           collects reports that replicas have caught up
    state_machine.py       applies the metadata records that the quorum has committed
    metadata_listeners.py  notifies listeners of changes of the metadata
    throttle_rates.py      the bytes per second of replicas that catch up
    listing.py             which brokers clients are shown
    consensus.py           the protocol between this room and the quorum

On the controller
    controller_server.py   receives the requests of all nodes, checks them, calls their handlers
    controller.py          the changes that can be requested from the controller
    liveness.py            which brokers are alive, and what follows for chains
    reconciliation.py      brings diskless partitions to one replica in each rack
    term_clock.py          time within the controller's term, which nobody can set
    decision_queue.py      makes one decision at a time; returns when it is committed and applied

Start with driver.py, then controller_channel.py, which shows the way of a request.

Not here: what is decided (controller/), how nodes agree (broker/quorum).
"""

from quipu.broker.cluster.driver import LOG_CONFIG, LOG_NAME, ClusterDriver
from quipu.broker.cluster.membership import Endpoints
from quipu.broker.cluster.metadata_listeners import MetadataListener

__all__ = ["LOG_CONFIG", "LOG_NAME", "ClusterDriver", "Endpoints", "MetadataListener"]

"""The quorum: this node's part in replicating the cluster's metadata by Raft.

    contract.py   the protocols that the quorum uses: state machine, peers; its settings and views
    driver.py     `Quorum`: drives the Raft core; does all of its disk and network I/O
    pending.py    the futures of proposals, reads and waits, and what resolves them
    view.py       builds the view of the quorum that DescribeQuorum responds with
    wal.py        the log `__cluster-0`: entries, votes and snapshots as typed batches

Start with driver.py.  Not here: the rules of consensus (raft/), what commands mean (controller/).
"""

from quipu.broker.quorum.contract import (
    NotController,
    QuorumConfig,
    QuorumView,
    ReplicaView,
    StateMachine,
)
from quipu.broker.quorum.driver import Quorum

__all__ = ["NotController", "Quorum", "QuorumConfig", "QuorumView", "ReplicaView", "StateMachine"]

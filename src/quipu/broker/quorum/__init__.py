"""The quorum: this node's part in keeping the cluster's metadata, as a replicated log.

    contract.py   what the quorum and the state that it replicates promise each other; its views
    driver.py     `Quorum`: the loop around the core, the only one who touches disk and peers
    waiting.py    who waits for what; view.py: what can be seen
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

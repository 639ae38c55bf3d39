"""Producer ids: handed out in blocks, so that giving one away seldom needs a write.

A block is reserved durably before its first id is used.  A broker that stops loses the rest of its
block: ids have holes, and are never given twice, which is all that anyone relies on.
"""

from typing import Final

from quipu.controller.decision import Decision
from quipu.controller.records import ProducerIdsReserved
from quipu.controller.state import ClusterState
from quipu.model.ids import NodeId, ProducerId

BLOCK_SIZE: Final = 1000


def reserve(state: ClusterState, node_id: NodeId) -> Decision[range]:
    """The next block of ids, for `node_id` alone."""
    start = state.next_producer_id
    end = ProducerId(start + BLOCK_SIZE)
    assert end < 2**63, "producer ids are used up"
    record = ProducerIdsReserved(node_id=node_id, next_producer_id=end)
    return Decision([record], [range(start, end)])

"""Which node does what: by a fixed rule over the live nodes, without asking anybody.

The nodes may see different sets of live nodes for a while.  Then a log has two owners, or none: all
passes may be run twice, and a log without an owner has one again soon.
"""

from collections.abc import Sequence
from hashlib import blake2b

from quipu.diskless.values import LogKey
from quipu.model.ids import NodeId


def owner(log: LogKey, nodes: Sequence[NodeId]) -> NodeId:
    """The one of `nodes`, at least one, that removes old records of a log.

    The node whose hash with the log is highest: so a node that goes or comes changes the owner only
    of the logs that it owned, or owns from then on.
    """
    return max(nodes, key=lambda node: (_hash(log, node), node))


def _hash(log: LogKey, node: NodeId) -> bytes:
    """Not a CRC: those of two nodes would differ by the same bits for every log."""
    text = b"%s/%d/%d" % (log.topic_id.bytes, log.partition, node)
    return blake2b(text, digest_size=8).digest()


def is_own(log: LogKey, node_id: NodeId, nodes: Sequence[NodeId]) -> bool:
    """Whether this node is the owner; it counts itself, also if others do not see it."""
    return owner(log, nodes if node_id in nodes else [*nodes, node_id]) == node_id


def pause_seconds(interval_ms: int, node_count: int, chance: float) -> float:
    """How long a node waits before its next turn of work that any one node may do.

    With n nodes each waits n times as long, more or less by a quarter so that they do not meet.
    `chance` is a random number in [0, 1).
    """
    return interval_ms / 1000 * max(1, node_count) * (0.75 + chance / 2)

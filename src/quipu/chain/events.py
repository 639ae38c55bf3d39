"""What happens to a replica.

`LogChanged`, `Flushed` and `ChainTick` carry no data: the replica looks at its log.  There is one
constant of each.
"""

from typing import Final, NamedTuple

from quipu.chain.messages import Message
from quipu.model.chains import ReplicaSet
from quipu.model.ids import Epoch, LogOffset, NodeId


class Configured(NamedTuple):
    """The controller has decided who the members are.  Sets older than the last are ignored.

    Given only if this node is listed with the broker epoch of this very process, or is no member
    any more: a configuration that relied on an earlier process is not for this one.
    """

    replica_set: ReplicaSet


class Received(NamedTuple):
    """A message of this partition.  Its entries are borrowed until the effects are done."""

    sender: NodeId
    message: Message


class EpochConfirmed(NamedTuple):
    """Response to `ConfirmEpoch`: the metadata was read, and `epoch` is the partition's newest.

    It was read after `claim_count` claims of newer epochs had come, and no more (chain.F2).
    """

    epoch: Epoch
    claim_count: int


class LogChanged(NamedTuple):
    """The log has changed: clients' batches were appended, or the log effects were carried out.

    One for all that changed since the last; at the head, once per turn of the loop.
    """


class Flushed(NamedTuple):
    """More of the log is durable than before."""


class ChainTick(NamedTuple):
    """Another chain.heartbeat.interval.ms has passed; not needed while `Replica.is_quiet`."""


class PeerUp(NamedTuple):
    """Messages to `node` can be sent again; what was on its way before may be lost."""

    node: NodeId


class PeerDown(NamedTuple):
    """Messages to `node` cannot be sent for now."""

    node: NodeId


class Drained(NamedTuple):
    """The send buffer to `node`, which refused entries, has room again."""

    node: NodeId


class EntriesSent(NamedTuple):
    """Response to `SendEntries`: entries up to `next_log`, of `size` bytes, are on their way."""

    to: NodeId
    session: int
    next_log: LogOffset
    size: int


class SendRefused(NamedTuple):
    """Response to `SendEntries`: nothing was sent; `Drained`, `PeerUp` or `ChainTick` retry."""

    to: NodeId


Event = (Configured | EpochConfirmed | Received | LogChanged | Flushed | ChainTick | PeerUp
         | PeerDown | Drained | EntriesSent | SendRefused)

LOG_CHANGED: Final = LogChanged()
FLUSHED: Final = Flushed()
TICK: Final = ChainTick()

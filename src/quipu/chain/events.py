"""What happens to a replica.

`Appended`, `Flushed` and `Tick` carry nothing: the replica looks at its log.  Hot ones exist once,
as constants.
"""

from typing import Final, NamedTuple

from quipu.chain.messages import Message
from quipu.model.chains import ReplicaSet
from quipu.model.ids import Epoch, LogOffset, NodeId


class Configured(NamedTuple):
    """The controller's word on who the members are.  Older ones than the last are ignored.

    Given only if this node is a member under the life of this very process, or no member any
    more: a configuration that counted on what an earlier process knew is not for this one.
    """

    replica_set: ReplicaSet


class Received(NamedTuple):
    """A message of this partition.  Its entries may be borrowed until the effects are done."""

    sender: NodeId
    message: Message


class EpochConfirmed(NamedTuple):
    """Answer to `AskEpoch`: the metadata has been read, and `epoch` is the partition's newest.

    It was read after `claim_count` messages of newer epochs had come, and no more: what they said
    is not so, for an epoch is decided before anybody speaks of it.
    """

    epoch: Epoch
    claim_count: int


class Appended(NamedTuple):
    """The log has changed: clients' batches were appended, or the log effects were carried out.

    One for all that changed since the last; at the head, once per turn of the loop.
    """


class Flushed(NamedTuple):
    """More of the log is durable than before."""


class Tick(NamedTuple):
    """Another chain.heartbeat.interval.ms has passed; may be left out while `is_quiet`."""


class PeerUp(NamedTuple):
    """Messages to `node` can be sent again; what was on its way before may be lost."""

    node: NodeId


class PeerDown(NamedTuple):
    """Messages to `node` cannot be sent for now."""

    node: NodeId


class Drained(NamedTuple):
    """The backlog to `node`, which refused entries, has room again."""

    node: NodeId


class Sent(NamedTuple):
    """Answer to `SendEntries`: entries up to `next_log`, of `size` bytes, are on their way."""

    to: NodeId
    session: int
    next_log: LogOffset
    size: int


class Refused(NamedTuple):
    """Answer to `SendEntries`: nothing was sent; a `Drained`, `PeerUp` or `Tick` tries again."""

    to: NodeId


Event = (Configured | EpochConfirmed | Received | Appended | Flushed | Tick | PeerUp | PeerDown
         | Drained | Sent | Refused)

APPENDED: Final = Appended()
FLUSHED: Final = Flushed()
TICK: Final = Tick()

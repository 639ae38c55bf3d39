"""What a replica wants done, in this order, before it is told of anything else.

If one effect of a list fails, the rest of the list is not carried out, and the log is as it was:
the replica finds out by itself and tries again.  Log effects (`Append`, `AppendConfiguration`,
`CutTo`, `Restart`) are followed by an `Appended` once the list is done.
"""

from typing import NamedTuple

from quipu.chain.messages import Buffer, Mark, Message, Replicate
from quipu.model.chains import ReplicaSet
from quipu.model.ids import LogOffset, NodeId


class Send(NamedTuple):
    """Best effort: a message that cannot be sent is as good as lost."""

    to: NodeId
    message: Message


class SendEntries(NamedTuple):
    """Read entries at `start_log`, put them into `message`, send; then tell `Sent` or `Refused`.

    At most `size_max` bytes, but at least one batch; at most ENTRIES_MAX entries.
    """

    to: NodeId
    start_log: LogOffset
    size_max: int
    message: Replicate


class Append(NamedTuple):
    """Append stored batches as they are; they continue the log."""

    entries: tuple[Buffer, ...]


class AppendConfiguration(NamedTuple):
    """Append a CONFIGURATION batch of `replica_set.epoch`: the epoch begins."""

    replica_set: ReplicaSet


class CutTo(NamedTuple):
    """Cut everything at or after `log_end`, and keep it aside; it is never committed."""

    log_end: LogOffset


class Restart(NamedTuple):
    """Drop the whole log; begin with the checkpoint that is first here, then append the rest."""

    entries: tuple[Buffer, ...]


class Advance(NamedTuple):
    """Everything below is committed, for good."""

    committed: Mark


class Serve(NamedTuple):
    """Whether clients may read here (`is_serving`), and write here (`is_leading`); both changed
    or not.
    """

    is_serving: bool
    is_leading: bool


class ReportInSync(NamedTuple):
    """Tell the controller that syncing `node` may serve; repeated until the version changes."""

    node: NodeId
    version: int


class AskEpoch(NamedTuple):
    """Somebody has spoken of a newer epoch: is there one?  `EpochConfirmed` answers, if not."""


class Disbelieve(NamedTuple):
    """Tell a person that `sender` speaks of an epoch that is not believed (fence.py)."""

    sender: NodeId
    epoch: int


class Halt(NamedTuple):
    """Nothing more is done in this epoch, and a person must look; tell why."""

    reason: str


Effect = (Send | SendEntries | Append | AppendConfiguration | CutTo | Restart | Advance | Serve
          | ReportInSync | AskEpoch | Disbelieve | Halt)

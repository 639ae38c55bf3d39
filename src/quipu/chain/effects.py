"""What a replica asks its driver to do, in this order, before the next event.

If one effect of a list fails, the rest of the list is dropped, and the log is as it was: the
replica finds out by itself and tries again.  Log effects (`Append`, `AppendConfiguration`,
`TruncateTo`, `Restart`) are followed by a `LogChanged` event once the list is done.
"""

from typing import NamedTuple

from quipu.chain.messages import Buffer, Mark, Message, Replicate
from quipu.model.chains import ReplicaSet
from quipu.model.ids import LogOffset, NodeId


class SendMessage(NamedTuple):
    """Send a message, or drop it if it cannot be sent: any message may be lost."""

    to: NodeId
    message: Message


class SendEntries(NamedTuple):
    """Read entries at `start_log` and send them in `message`; then `EntriesSent` or `SendRefused`.

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


class TruncateTo(NamedTuple):
    """Truncate the log to `log_end`, and keep the rest aside; it is never committed."""

    log_end: LogOffset


class Restart(NamedTuple):
    """Replace the whole log: start with the checkpoint, the first entry, then append the rest.

    If the checkpoint does not begin at `log_start`, nothing is replaced (chain.I3).
    """

    log_start: LogOffset
    entries: tuple[Buffer, ...]


class AdvanceCommitted(NamedTuple):
    """Note that everything below `committed` is committed, for good."""

    committed: Mark


class SetServing(NamedTuple):
    """Let clients read here if `is_serving`, and write here if `is_leader`."""

    is_serving: bool
    is_leader: bool


class ReportInSync(NamedTuple):
    """Report that syncing `node` may serve; repeated until the version changes."""

    node: NodeId
    version: int


class ConfirmEpoch(NamedTuple):
    """Read the metadata: a member claims a newer epoch.  `EpochConfirmed` says if there is none."""


class WarnEpochIgnored(NamedTuple):
    """Log that `sender` claims a newer epoch, and that the claim is ignored (chain.F1)."""

    sender: NodeId
    epoch: int


class Halt(NamedTuple):
    """Stop this replica, for `reason`: a person must look."""

    reason: str


Effect = (SendMessage | SendEntries | Append | AppendConfiguration | TruncateTo | Restart
          | AdvanceCommitted | SetServing | ReportInSync | ConfirmEpoch | WarnEpochIgnored | Halt)

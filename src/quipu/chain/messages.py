"""The messages between the replicas of one partition.

    DescribeLog      a new head asks every serving member where its log ends
    LogDescription   where the sender's log ends, and which epochs it has; `DescribeReason` says why
    Replicate        batches, and where they belong; without batches it is a heartbeat or a probe
    Ack              how far every member from the sender to the tail has the log
    Fenced           the receiver's epoch is over

Every message carries the epoch of its sender.  One of an older epoch is rejected, one of a newer
epoch proves that the receiver's is over (epoch_fence.py).

A sender numbers its sessions.  Within one, each `Replicate` continues the one before it; after a
loss, a restart or a rejection the sender opens a new session.  An `Ack` counts only in its own
session, so an old one never acknowledges batches that have since been lost.

Not here: the bytes (codec.py), which partition a message belongs to (the driver).
"""

from enum import IntEnum
from typing import Final, NamedTuple

from quipu.model.ids import Epoch, LogOffset, Offset

EPOCHS_MAX: Final = 128  # in a description: the last ones
ENTRIES_MAX: Final = 1024  # in one message

Buffer = bytes | memoryview


class Mark(NamedTuple):
    """A boundary between batches, by log offset and by client offset, which grow together."""

    log: LogOffset
    offset: Offset


BEGIN: Final = Mark(LogOffset(0), Offset(0))
FAR: Final = Mark(LogOffset((1 << 63) - 1), Offset((1 << 63) - 1))  # beyond every log


class DescribeReason(IntEnum):
    """Why a replica describes its log."""

    RESPONSE = 0  # to `DescribeLog`
    REJECTION = 1  # what was sent in `session` does not continue the log
    FETCH = 2  # a new head asks to be sent what it lacks
    ANNOUNCEMENT = 3  # a member in a new epoch says where its log ends


# Flags of `Replicate`: plain numbers, since they are read in every message.
OPEN: Final = 1  # first of its session
TRUNCATE: Final = 2  # truncate the log to `prev_end` first; only with OPEN, without entries
RESTART: Final = 4  # replace the whole log: the first entry is a checkpoint; only with OPEN
REQUIRED: Final = 8  # nothing more is committed in this version without the receiver's Ack


class DescribeLog(NamedTuple):
    """A new head asks where the receiver's log ends."""

    epoch: Epoch


class LogDescription(NamedTuple):
    """Where one replica's log begins and ends, and which epochs it has."""

    epoch: Epoch
    reason: DescribeReason
    session: int  # that is rejected; 0 if none
    log_start: LogOffset  # of the first segment
    log_end: LogOffset
    committed_log: LogOffset
    epochs: tuple[tuple[Epoch, LogOffset], ...]  # the last EPOCHS_MAX; where each begins

    @property
    def last_epoch(self) -> int:
        """Of the last batch; -1 if there is none."""
        return self.epochs[-1][0] if self.epochs else -1

    @property
    def is_empty(self) -> bool:
        return self.log_start == self.log_end


class Replicate(NamedTuple):
    """Batches that follow `prev_end`, whose predecessor has epoch `prev_epoch`."""

    epoch: Epoch
    version: int
    flags: int  # OPEN, TRUNCATE, RESTART, REQUIRED
    session: int
    prev_end: LogOffset
    prev_epoch: Epoch
    durable: Mark  # every member from the head to the sender has the log up to here
    committed: Mark
    sender_end: LogOffset  # shows how far behind the receiver is
    receiver_end: LogOffset  # with TRUNCATE or RESTART: the receiver's log end, as the sender knows
    entries: tuple[Buffer, ...]  # stored batches; each entry of one type


class Ack(NamedTuple):
    """Every member from the sender to the tail has the log up to `acked`."""

    epoch: Epoch
    session: int
    acked: Mark
    end_log: LogOffset  # of the sender's own log
    committed_log: LogOffset  # as far as the sender knows


class Fenced(NamedTuple):
    """The receiver's epoch is over; the sender's is `epoch`."""

    epoch: Epoch


Message = DescribeLog | LogDescription | Replicate | Ack | Fenced

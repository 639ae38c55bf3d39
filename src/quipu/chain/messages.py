"""What the replicas of one partition tell each other.

    Describe    a new head asks every serving member where its log ends
    Described   where the sender's log ends, and which epochs it has: as an answer, as a refusal of
                what was sent, as a request to be sent what is missing, or as a greeting
    Replicate   batches, and where they belong; without batches it is a heartbeat or a probe
    Ack         how far everybody from the sender to the end of the chain has the log
    Fenced      your epoch is over

Every message carries the epoch of its sender.  One of an older epoch is refused, one of a newer
epoch proves that the receiver's is over.

A sender numbers its sessions.  Within one, each `Replicate` continues the one before it; whatever
breaks that (a loss, a restart, a refusal) is answered with a new session.  An `Ack` counts only in
the session it was given in, so an old one never speaks for a log that has since been lost.

Not here: the bytes (codec.py), whose partition it is (the driver knows).
"""

from enum import IntEnum
from typing import Final, NamedTuple

from quipu.model.ids import Epoch, LogOffset, Offset

EPOCHS_MAX: Final = 128  # of a history that is told; the last ones
ENTRIES_MAX: Final = 1024  # in one message

Buffer = bytes | memoryview


class Mark(NamedTuple):
    """A boundary between batches, in both countings.  Marks of one log compare by either."""

    log: LogOffset
    offset: Offset


BEGIN: Final = Mark(LogOffset(0), Offset(0))
FAR: Final = Mark(LogOffset((1 << 63) - 1), Offset((1 << 63) - 1))  # beyond every log


class Why(IntEnum):
    """Why a replica describes its log."""

    ANSWER = 0  # it was asked
    REFUSAL = 1  # what was sent does not continue it; `session` says in which session
    PULL = 2  # please send me what I lack
    GREETING = 3  # I have a new configuration, and this is where I stand


# How a `Replicate` is meant; plain numbers, since every message is asked.
OPEN: Final = 1  # first of its session
CUT: Final = 2  # everything at or after `prev_end` must go first; only with OPEN, without entries
RESTART: Final = 4  # everything must go: the first entry is a checkpoint; only with OPEN
COUNTED: Final = 8  # nothing more is committed in this version without the receiver's Ack


class Describe(NamedTuple):
    """A new head asks; see `Described`."""

    epoch: Epoch


class Described(NamedTuple):
    """One replica's log, as far as others must know it."""

    epoch: Epoch
    why: Why
    session: int  # that is answered; 0 if none
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
    flags: int  # OPEN, CUT, RESTART, COUNTED
    session: int
    prev_end: LogOffset
    prev_epoch: Epoch
    durable: Mark  # everybody from the head to the sender has the log up to here
    committed: Mark
    sender_end: LogOffset  # tells how far behind the receiver is
    receiver_end: LogOffset  # what the sender takes for the receiver's end, if it is to be cut
    entries: tuple[Buffer, ...]  # stored batches; each entry of one type


class Ack(NamedTuple):
    """Everybody from the sender to the end of the chain has the log up to `acked`."""

    epoch: Epoch
    session: int
    acked: Mark
    end_log: LogOffset  # of the sender's own log
    committed_log: LogOffset  # as far as the sender knows


class Fenced(NamedTuple):
    """`epoch` is the one that counts now."""

    epoch: Epoch


Message = Describe | Described | Replicate | Ack | Fenced

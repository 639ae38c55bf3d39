"""The leader epochs of a log: the first batch that each of them wrote, by both offsets.

Invariants
    storage.E1  epochs and their first log offsets only grow; their first client offsets never fall
    storage.E2  every batch in the log belongs to the last epoch that starts at or before it
    storage.E3  an epoch that wrote anything, even no more than internal batches, is kept for as
        long as a segment with a batch of it, or of an epoch before it, is kept; and so are epochs
        with records at or after the log start, which a remote tier has if no segment does

The history is derived from the batches' own leader epochs; a checkpoint carries it past the
segments that retention drops.  Replicas compare it by log offset, clients by client offset: what a
client gets does not include epochs without client records, nor those whose records are deleted.

    per epoch: epoch i32 | start offset i64 | start log offset i64, big endian

Before there were replicas the log offset was not kept: `decode_old` reads that form.
"""

from bisect import bisect_left, bisect_right
from struct import Struct
from typing import Final, NamedTuple

from quipu.model.errors import Code, MalformedBytes, RequestError
from quipu.model.ids import NO_EPOCH, Epoch, LogOffset, Offset

_ENTRY: Final = Struct(">iqq")
_OLD_ENTRY: Final = Struct(">iq")


class EpochStart(NamedTuple):
    """Where an epoch begins."""

    epoch: Epoch
    offset: Offset
    log_offset: LogOffset


class EpochHistory:
    """The start of every epoch of which the log still has a batch."""

    __slots__ = ("_epochs", "_logs", "_starts")

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self._logs: list[int] = []

    @property
    def latest(self) -> Epoch:
        """The epoch of the last batch, or -1 before the first."""
        return Epoch(self._epochs[-1]) if self._epochs else NO_EPOCH

    def entries(self) -> list[EpochStart]:
        return [EpochStart(Epoch(epoch), Offset(start), LogOffset(log_offset))
                for epoch, start, log_offset in zip(
                    self._epochs, self._starts, self._logs, strict=True)]

    def by_log_offset(self) -> list[tuple[Epoch, LogOffset]]:
        """What replicas compare: each epoch and its first log offset (storage.E2)."""
        return [(Epoch(epoch), LogOffset(log_offset))
                for epoch, log_offset in zip(self._epochs, self._logs, strict=True)]

    def note(self, epoch: int, offset: int, log_offset: int) -> None:
        """Take in a batch of `epoch` at these offsets; kept if the epoch is new (storage.E1)."""
        if epoch <= self.latest:
            if epoch < self.latest and epoch >= 0:
                raise RequestError(f"leader epoch {epoch} is over, it is {self.latest} now; "
                                   "refresh metadata", code=Code.FENCED_LEADER_EPOCH)
            return
        if self._logs and self._logs[-1] == log_offset:  # the last leader wrote nothing at all
            self._pop()
        self._push(epoch, offset, log_offset)

    def begin_by(self, offset: int, log_offset: int) -> bool:
        """Does every epoch begin at or before these offsets?"""
        return not self._epochs or (self._starts[-1] <= offset and self._logs[-1] <= log_offset)

    def forget_unwritten(self, log_end: int) -> None:
        """Forget an epoch that was noted in advance and of which there is no batch."""
        while self._logs and self._logs[-1] >= log_end:
            self._pop()

    def _push(self, epoch: int, offset: int, log_offset: int) -> None:
        assert epoch > self.latest, (epoch, self.latest)  # storage.E1
        assert not self._logs or log_offset > self._logs[-1], (epoch, log_offset)  # storage.E1
        assert not self._starts or offset >= self._starts[-1], (epoch, offset)  # storage.E1
        self._epochs.append(epoch)
        self._starts.append(offset)
        self._logs.append(log_offset)

    def _pop(self) -> None:
        assert self._epochs, "no epoch to forget"
        self._epochs.pop()
        self._starts.pop()
        self._logs.pop()

    def end(
        self, epoch: Epoch, end_offset: Offset, *, start_offset: int = 0
    ) -> tuple[Epoch, Offset] | None:
        """The last epoch at or before `epoch` and where it ended, as in OffsetForLeaderEpoch.

        Epochs without records at or after `start_offset` are ignored.  None if no such epoch is
        known.
        """
        if not self._epochs or epoch > self._epochs[-1] or epoch < 0:
            return None
        index = bisect_right(self._epochs, epoch)
        if index == len(self._epochs):
            return Epoch(self._epochs[-1]), end_offset
        end = self._starts[index]
        with_records = bisect_left(self._starts, end, 0, index)
        if with_records == 0 or end <= start_offset:  # older than all that a client can read
            return epoch, Offset(max(end, start_offset))
        return Epoch(self._epochs[with_records - 1]), Offset(end)

    def at(self, offset: int) -> Epoch:
        """The epoch of the record at `offset`; -1 if it is not known any more."""
        index = bisect_right(self._starts, offset)
        return Epoch(self._epochs[index - 1]) if index else NO_EPOCH

    def within(self, base: "EpochStart", end_offset: int) -> list["EpochStart"]:
        """The epochs with records from `base` up to `end_offset`, and where they begin in it.

        `base` is where a segment begins; its epoch does not count.
        """
        found: list[EpochStart] = []
        ends = [*self._starts[1:], end_offset]
        for epoch, start, log, end in zip(
                self._epochs, self._starts, self._logs, ends, strict=bool(self._epochs)):
            if max(start, base.offset) < min(end, end_offset):
                found.append(EpochStart(
                    Epoch(epoch), Offset(max(start, base.offset)),
                    LogOffset(max(log, base.log_offset))))
        return found

    def advance_start(self, start_log: int, start_offset: int) -> None:
        """Forget epochs whose batches all lie below `start_log`, the first segment (storage.E3).

        Those with records at or after `start_offset`, the log start, are kept.
        """
        count = max(0, min(bisect_right(self._logs, start_log),
                           bisect_right(self._starts, start_offset)) - 1)
        latest = self.latest
        del self._epochs[:count], self._starts[:count], self._logs[:count]
        assert self.latest == latest, (latest, start_log)  # storage.E3
        assert len(self._epochs) == len(self._starts), start_log
        assert len(self._epochs) == len(self._logs), start_log

    def encode(self) -> bytes:
        return b"".join(map(_ENTRY.pack, self._epochs, self._starts, self._logs))

    @classmethod
    def decode(cls, data: bytes) -> "EpochHistory":
        if len(data) % _ENTRY.size:
            raise MalformedBytes(f"epoch history of {len(data)} bytes")
        history = cls()
        for epoch, start, log_offset in _ENTRY.iter_unpack(data):
            if epoch < 0 or (history._epochs and not (
                    epoch > history._epochs[-1] and start >= history._starts[-1]
                    and log_offset > history._logs[-1])):
                raise MalformedBytes(f"epoch history runs backwards at epoch {epoch}")
            history._push(epoch, start, log_offset)
        return history

    @classmethod
    def decode_old(cls, data: bytes) -> "EpochHistory":
        """Read a history without log offsets: at least the first epoch began with the log.

        Of a later one the log offset is no less than its client offset, and that must do.
        """
        if len(data) % _OLD_ENTRY.size:
            raise MalformedBytes(f"epoch history of {len(data)} bytes")
        history = cls()
        for epoch, start in _OLD_ENTRY.iter_unpack(data):
            if start < 0 or epoch < 0 or (history._epochs and not (
                    epoch > history._epochs[-1] and start > history._starts[-1])):
                raise MalformedBytes(f"epoch history runs backwards at epoch {epoch}")
            history._push(epoch, start, start if history._epochs else 0)
        return history

"""Who led when: the first batch that each leader epoch wrote, by both offsets.

Invariants
    E1  epochs and their first log offsets only grow; their first client offsets never fall
    E2  every batch in the log belongs to the last epoch that starts at or before it
    E3  an epoch that wrote anything, even no more than internal batches, is kept for as long as
        a segment with a batch of it, or of an epoch before it, is

The history is derived from the batches' own leader epochs; a checkpoint carries it past the
segments that retention drops.  Replicas compare it by log offset, clients by client offset: of an
epoch without client records, and of one whose records are all deleted, a client is told nothing.

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
        """What replicas compare: each epoch and its first log offset."""
        return [(Epoch(epoch), LogOffset(log_offset))
                for epoch, log_offset in zip(self._epochs, self._logs, strict=True)]

    def note(self, epoch: int, offset: int, log_offset: int) -> None:
        """A batch of `epoch` is at these offsets; remembered if the epoch is new (E1)."""
        if epoch <= self.latest:
            if epoch < self.latest and epoch >= 0:
                raise RequestError(f"leader epoch {epoch} is over, it is {self.latest} now; "
                                   "refresh metadata", code=Code.FENCED_LEADER_EPOCH)
            return
        if self._logs and self._logs[-1] == log_offset:  # the last leader wrote nothing at all
            self._pop()
        self._push(epoch, offset, log_offset)

    def forget_unwritten(self, log_end: int) -> None:
        """Forget an epoch that was noted in advance and of which there is no batch."""
        while self._logs and self._logs[-1] >= log_end:
            self._pop()

    def _push(self, epoch: int, offset: int, log_offset: int) -> None:
        self._epochs.append(epoch)
        self._starts.append(offset)
        self._logs.append(log_offset)

    def _pop(self) -> None:
        self._epochs.pop()
        self._starts.pop()
        self._logs.pop()

    def end(
        self, epoch: Epoch, end_offset: Offset, *, start_offset: int = 0
    ) -> tuple[Epoch, Offset] | None:
        """The last epoch at or before `epoch` and where it ended, as Kafka's key 23 answers.

        Epochs without records at or after `start_offset` are as if they had never been.  None if
        no such epoch is known.
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

    def advance_start(self, start_log: int) -> None:
        """Forget epochs whose batches all lie before `start_log`, where the first segment is."""
        count = max(0, bisect_right(self._logs, start_log) - 1)
        del self._epochs[:count], self._starts[:count], self._logs[:count]

    def encode(self) -> bytes:
        return b"".join(map(_ENTRY.pack, self._epochs, self._starts, self._logs))

    @classmethod
    def decode(cls, data: bytes) -> "EpochHistory":
        if len(data) % _ENTRY.size:
            raise MalformedBytes(f"epoch history of {len(data)} bytes")
        history = cls()
        for epoch, start, log_offset in _ENTRY.iter_unpack(data):
            if history._epochs and not (
                    epoch > history._epochs[-1] and start >= history._starts[-1]
                    and log_offset > history._logs[-1]):
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
            if history._epochs and not (epoch > history._epochs[-1]
                                        and start > history._starts[-1]):
                raise MalformedBytes(f"epoch history runs backwards at epoch {epoch}")
            history._push(epoch, start, start if history._epochs else 0)
        return history

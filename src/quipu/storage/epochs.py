"""Who led when: the first offset that each leader epoch wrote.

Invariants
    E1  epochs and their start offsets both only grow
    E2  every batch in the log belongs to the last epoch that starts at or before it

The history is derived from the batches' own leader epochs; a checkpoint carries it past the
segments that retention drops.
"""

from bisect import bisect_right
from struct import Struct
from typing import Final

from quipu.model.errors import Code, MalformedBytes, RequestError
from quipu.model.ids import NO_EPOCH, Epoch, Offset

_ENTRY: Final = Struct(">iq")


class EpochHistory:
    """(epoch, start offset) of every leader whose records the log still has."""

    __slots__ = ("_epochs", "_starts")

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []

    @property
    def latest(self) -> Epoch:
        """The epoch of the last batch, or -1 before the first."""
        return Epoch(self._epochs[-1]) if self._epochs else NO_EPOCH

    def entries(self) -> list[tuple[Epoch, Offset]]:
        return [(Epoch(epoch), Offset(start))
                for epoch, start in zip(self._epochs, self._starts, strict=True)]

    def note(self, epoch: int, offset: int) -> None:
        """A batch of `epoch` starts at `offset`; remembered if the epoch is new (E1)."""
        if epoch <= self.latest:
            if epoch < self.latest and epoch >= 0:
                raise RequestError(f"leader epoch {epoch} is over, it is {self.latest} now; "
                                   "refresh metadata", code=Code.FENCED_LEADER_EPOCH)
            return
        if self._starts and self._starts[-1] == offset:  # the last leader wrote nothing
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(offset)

    def end(self, epoch: Epoch, end_offset: Offset) -> tuple[Epoch, Offset] | None:
        """The last epoch at or before `epoch` and where it ended, as Kafka's key 23 answers.

        None if no such epoch is known.
        """
        if not self._epochs or epoch > self._epochs[-1] or epoch < 0:
            return None
        index = bisect_right(self._epochs, epoch)
        if index == 0:  # older than all that is kept: it ended where the first one starts
            return epoch, Offset(self._starts[0])
        if index == len(self._epochs):
            return Epoch(self._epochs[-1]), end_offset
        return Epoch(self._epochs[index - 1]), Offset(self._starts[index])

    def advance_start(self, start_offset: Offset) -> None:
        """Forget epochs that ended before `start_offset`; the one that holds it starts there."""
        while len(self._starts) > 1 and self._starts[1] <= start_offset:
            del self._epochs[0], self._starts[0]
        if self._starts and self._starts[0] < start_offset:
            self._starts[0] = start_offset

    def encode(self) -> bytes:
        return b"".join(map(_ENTRY.pack, self._epochs, self._starts))

    @classmethod
    def decode(cls, data: bytes) -> "EpochHistory":
        if len(data) % _ENTRY.size:
            raise MalformedBytes(f"epoch history of {len(data)} bytes")
        history = cls()
        for epoch, start in _ENTRY.iter_unpack(data):
            if history._epochs and not (epoch > history._epochs[-1]
                                        and start > history._starts[-1]):
                raise MalformedBytes(f"epoch history runs backwards at epoch {epoch}")
            history._epochs.append(epoch)
            history._starts.append(start)
        return history

"""A snapshot on its way to a follower: cut into chunks, sent one by one, put together.

The bytes of a snapshot are its items one after the other, each with its size before it.

Invariants
    raft.I1  a follower takes chunks in order and of one snapshot only; to any other it responds
             with how much it has, and the leader continues from there
    raft.I2  memory grows with the bytes that were received, never with the size that was announced
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final

from quipu.model.errors import MalformedBytes
from quipu.model.ids import RaftIndex, Term
from quipu.raft.messages import InstallSnapshot, Snapshot
from quipu.raft.settings import CHUNK_SIZE_MAX, SNAPSHOT_SIZE_MAX

_SIZE: Final = Struct(">I")


def join_items(items: Iterable[bytes]) -> bytes:
    """Return the bytes of a snapshot of `items`."""
    parts: list[bytes] = []
    for item in items:
        parts += (_SIZE.pack(len(item)), item)
    return b"".join(parts)


def split_items(data: bytes | bytearray) -> tuple[bytes, ...]:
    """Return the items in `data`; raises `MalformedBytes`."""
    items = []
    position = 0
    while position < len(data):
        if len(data) - position < _SIZE.size:
            raise MalformedBytes(f"snapshot ends within the size of an item, at {position}")
        (size,) = _SIZE.unpack_from(data, position)
        position += _SIZE.size
        if size > len(data) - position:
            raise MalformedBytes(f"item of {size} bytes at {position} of {len(data)}")
        items.append(bytes(data[position : position + size]))
        position += size
    assert position == len(data), (position, len(data))
    return tuple(items)


class SnapshotSender:
    """A snapshot on its way to one follower, at the leader."""

    def __init__(self, snapshot: Snapshot, data: bytes) -> None:
        assert snapshot.index > 0, snapshot.index
        self.snapshot = snapshot
        self.position = 0  # bytes that the follower has
        self._data = data

    def resume_from(self, position: int) -> None:
        """Continue at `position`, as the follower has responded; it may be below the last one."""
        if 0 <= position < len(self._data):
            self.position = position  # raft.I1
        assert self.position <= len(self._data), (self.position, len(self._data))

    def message(self, term: Term, last_index: RaftIndex) -> InstallSnapshot:
        """Return the chunk that the follower needs next."""
        snapshot = self.snapshot
        assert snapshot.term <= term, (snapshot.term, term)
        assert snapshot.index <= last_index, (snapshot.index, last_index)
        assert self.position <= len(self._data), (self.position, len(self._data))
        return InstallSnapshot(
            term=term, index=snapshot.index, index_term=snapshot.term,
            configuration=snapshot.configuration, last_index=last_index, size=len(self._data),
            position=self.position, data=self._data[self.position : self.position + CHUNK_SIZE_MAX])


class SnapshotReceiver:
    """A snapshot that a follower is being sent, as far as it has arrived."""

    def __init__(self) -> None:
        # Which snapshot it is: the leader's term, index and term of its last entry, its size.
        self._of: tuple[Term, RaftIndex, Term, int] | None = None
        self._data = bytearray()

    def receive(self, chunk: InstallSnapshot) -> tuple[int, Snapshot | None]:
        """Take in `chunk`; return how many bytes have arrived, and the snapshot once complete."""
        of = (chunk.term, chunk.index, chunk.index_term, chunk.size)
        if chunk.size > SNAPSHOT_SIZE_MAX:
            raise MalformedBytes(f"snapshot of {chunk.size} bytes, more than {SNAPSHOT_SIZE_MAX}")
        if of != self._of:
            self._of, self._data = of, bytearray()  # raft.I2: nothing is reserved
        if chunk.position == len(self._data):  # raft.I1
            if len(self._data) + len(chunk.data) > chunk.size:
                raise MalformedBytes(f"chunks of a snapshot exceed its {chunk.size} bytes")
            self._data += chunk.data
        assert self._of == of, (self._of, of)  # raft.I1
        assert len(self._data) <= chunk.size, (len(self._data), chunk.size)  # raft.I2
        if len(self._data) < chunk.size:
            return len(self._data), None
        items = split_items(self._data)
        self.clear()
        return chunk.size, Snapshot(chunk.index, chunk.index_term, chunk.configuration, items)

    def clear(self) -> None:
        """Drop what has arrived."""
        self._of, self._data = None, bytearray()

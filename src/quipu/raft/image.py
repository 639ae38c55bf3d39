"""A state as a whole on its way to another node: cut into pieces, sent one by one, put together.

The bytes of an image are its items one after the other, each with its size before it.

Invariants
    I1  whoever gathers takes pieces in order and of one image only; any other makes it say how
        much it has, and the sender goes on from there
    I2  memory grows with what was received, never with what was announced
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final

from quipu.model.errors import MalformedBytes
from quipu.model.ids import RaftIndex, Term
from quipu.raft.messages import Image, Install
from quipu.raft.settings import IMAGE_SIZE_MAX, PIECE_SIZE_MAX

_SIZE: Final = Struct(">I")


def join_items(items: Iterable[bytes]) -> bytes:
    parts: list[bytes] = []
    for item in items:
        parts += (_SIZE.pack(len(item)), item)
    return b"".join(parts)


def split_items(data: bytes | bytearray) -> tuple[bytes, ...]:
    """The items in `data`; raises `MalformedBytes`."""
    items = []
    position = 0
    while position < len(data):
        if len(data) - position < _SIZE.size:
            raise MalformedBytes(f"image ends within the size of an item, at {position}")
        (size,) = _SIZE.unpack_from(data, position)
        position += _SIZE.size
        if size > len(data) - position:
            raise MalformedBytes(f"item of {size} bytes at {position} of {len(data)}")
        items.append(bytes(data[position : position + size]))
        position += size
    return tuple(items)


class Pieces:
    """An image on its way to one node."""

    def __init__(self, image: Image, data: bytes) -> None:
        self.image = image
        self.position = 0  # up to which the other has it
        self._data = data

    def go_on_from(self, position: int) -> None:
        """The other has it up to `position`: be it more than we knew, or less (I1)."""
        if 0 <= position < len(self._data):
            self.position = position

    def message(self, term: Term, last_index: RaftIndex) -> Install:
        image = self.image
        return Install(
            term=term, index=image.index, index_term=image.term,
            configuration=image.configuration, last_index=last_index, size=len(self._data),
            position=self.position, data=self._data[self.position : self.position + PIECE_SIZE_MAX])


class Gathering:
    """An image that a follower is being sent."""

    def __init__(self) -> None:
        self._of: tuple[Term, RaftIndex, Term, int] | None = None  # whose, and which
        self._data = bytearray()

    def take(self, piece: Install) -> tuple[int, Image | None]:
        """How many bytes are here now, and the image if that is all of them (I1)."""
        of = (piece.term, piece.index, piece.index_term, piece.size)
        if piece.size > IMAGE_SIZE_MAX:
            raise MalformedBytes(f"image of {piece.size} bytes, more than {IMAGE_SIZE_MAX}")
        if of != self._of:
            self._of, self._data = of, bytearray()
        if piece.position == len(self._data):
            if len(self._data) + len(piece.data) > piece.size:
                raise MalformedBytes(f"pieces of an image exceed its {piece.size} bytes")
            self._data += piece.data
        if len(self._data) < piece.size:
            return len(self._data), None
        items = split_items(self._data)
        self.drop()
        return piece.size, Image(piece.index, piece.index_term, piece.configuration, items)

    def drop(self) -> None:
        """Forget what is here."""
        self._of, self._data = None, bytearray()

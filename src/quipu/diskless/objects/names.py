"""The name of an object: which writer wrote it, as its how many-th; and the key made of it.

    objects/{hh}/{node}-{writer, 32 hex digits}-{sequence, 16 hex digits}    has batches
    receipts/{hh}/{node}-{writer}-{sequence}                                 has receipts alone

`writer` is a random UUID, made when a writer starts, so no two objects ever have the same key.  A
writer numbers its objects from 0 on, in the order of their commits.  `hh` is a hash of writer and
sequence: it spreads the objects over 256 prefixes, which stores serve apart from each other.
"""

import re
from typing import Final, NamedTuple
from uuid import UUID
from zlib import crc32

from quipu.model.ids import NodeId

OBJECTS_PREFIX: Final = "objects/"
RECEIPTS_PREFIX: Final = "receipts/"
NODE_MAX: Final = (1 << 31) - 1
SEQUENCE_MAX: Final = (1 << 63) - 1
_KEY: Final = re.compile(
    r"(objects|receipts)/([0-9a-f]{2})/(0|[1-9][0-9]{0,9})-([0-9a-f]{32})-([0-9a-f]{16})")


class ObjectName(NamedTuple):
    """What identifies an object; the names of one writer are ordered by `sequence`."""

    node_id: NodeId
    writer: UUID
    sequence: int

    @property
    def key(self) -> str:
        """The key of an object that has batches."""
        return OBJECTS_PREFIX + self._end

    @property
    def receipts_key(self) -> str:
        """The key of an object that has receipts alone."""
        return RECEIPTS_PREFIX + self._end

    @property
    def _end(self) -> str:
        assert 0 <= self.node_id <= NODE_MAX, self
        assert 0 <= self.sequence <= SEQUENCE_MAX, self
        writer = f"{self.writer.hex}-{self.sequence:016x}"
        return f"{crc32(writer.encode()) & 0xFF:02x}/{self.node_id}-{writer}"


def find_name(key: str) -> ObjectName | None:
    """The object that a key names, of either kind; None if it is no such key."""
    found = _KEY.fullmatch(key)
    if found is None:
        return None
    _, _, node_id, writer, sequence = found.groups()
    if int(node_id) > NODE_MAX or int(sequence, 16) > SEQUENCE_MAX:
        return None
    name = ObjectName(NodeId(int(node_id)), UUID(hex=writer), int(sequence, 16))
    return name if key in {name.key, name.receipts_key} else None


def has_batches(key: str) -> bool:
    """Whether the object with this key has batches, and not receipts alone."""
    return key.startswith(OBJECTS_PREFIX)

"""What a consumer subscribes to, read out of the metadata that it joins with.

    version int16 · topics [string] · further fields that are not looked at

To the coordinator a member's metadata is opaque; this is the one thing it may look up in it, as
Kafka's does: offsets of a topic that the group still reads must be neither deleted nor expired.
Nothing depends on the answer for a group to work, so bytes that make no sense have no topics.
"""

from struct import Struct, error
from typing import Final

_HEAD: Final = Struct(">hi")  # version, number of topics
_LENGTH: Final = Struct(">h")


def find_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a consumer's subscription; None if `metadata` is not one."""
    try:
        version, count = _HEAD.unpack_from(metadata)
        position = _HEAD.size
        if version < 0 or not 0 <= count <= len(metadata):
            return None
        topics = []
        for _ in range(count):
            (size,) = _LENGTH.unpack_from(metadata, position)
            start, position = position + _LENGTH.size, position + _LENGTH.size + size
            if size < 0 or position > len(metadata):
                return None
            topics.append(metadata[start:position].decode())
    except (error, UnicodeDecodeError):
        return None
    return frozenset(topics)

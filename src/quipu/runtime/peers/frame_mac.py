"""Authenticates every frame after the handshake, by a tag that only the two nodes can make.

    frame   size i32 | kind u8 | body | tag 16

A tag is an HMAC-SHA256, cut to 16 bytes, of the frame's number on its connection and direction, its
size, its kind and its body.  The key is for one direction of one connection, and derived from
peer.secret and both hellos with their nonces (hello.py).  So a frame that was altered, dropped,
repeated, reordered, sent back or taken from another connection does not verify.  Nothing is
encrypted: an attacker who can read the network can read the records.

HMAC-SHA256 because processors have instructions for it: 1.4 to 1.8 GB/s here, where a keyed
BLAKE2b reaches 0.6 to 0.9 (ADR 17).
"""

import hmac
from collections.abc import Sequence
from struct import Struct
from typing import Final

from quipu.runtime.net.outgoing import Buffer

TAG_SIZE: Final = 16

_NUMBER: Final = Struct(">Q")
_NUMBER_SIZE: Final = Struct(">Qi")


class FrameMac:
    """The tags of one direction of one connection: made by one side, checked by the other."""

    __slots__ = ("_keyed", "_number")

    def __init__(self, key: bytes) -> None:
        self._keyed = hmac.new(key, None, "sha256")
        self._number = 0  # of the next frame

    def tag(self, head: bytes, body: Sequence[Buffer]) -> bytes:
        """The tag of the next frame that is sent; `head` is its size and kind."""
        mac = self._keyed.copy()
        mac.update(_NUMBER.pack(self._number) + head)
        for buffer in body:
            mac.update(buffer)
        self._number += 1
        return mac.digest()[:TAG_SIZE]

    def verifies(self, frame: memoryview) -> bool:
        """Whether `frame`, without its size, is the next one that the other side sent."""
        end = len(frame) - TAG_SIZE
        if end < 1:
            return False
        mac = self._keyed.copy()
        mac.update(_NUMBER_SIZE.pack(self._number, len(frame)))
        mac.update(frame[:end])
        self._number += 1
        return hmac.compare_digest(mac.digest()[:TAG_SIZE], frame[end:])

"""Randomness: ids, jitter and secrets."""

import os
import random
from typing import Protocol
from uuid import UUID


class Rng(Protocol):
    """A source of random values."""

    def uuid(self) -> UUID:
        """A random (version 4) UUID."""
        ...

    def random(self) -> float:
        """A number in [0, 1)."""
        ...

    def token(self, size: int) -> bytes:
        """`size` bytes that cannot be guessed."""
        ...


class SystemRng:
    """The operating system's random values."""

    def uuid(self) -> UUID:
        return UUID(bytes=os.urandom(16), version=4)

    def random(self) -> float:
        return random.random()  # jitter, not a secret

    def token(self, size: int) -> bytes:
        return os.urandom(size)


class SeededRng:
    """Pseudo-random values that are the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def uuid(self) -> UUID:
        return UUID(bytes=self.token(16), version=4)

    def random(self) -> float:
        return self._random.random()

    def token(self, size: int) -> bytes:
        return self._random.randbytes(size)

"""Random values in a simulated world: one seed, and a generator derived from it for each user.

A derived generator depends only on the seed and on its own name, so that drawing more values from
one does not change those of the others.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeVar
from uuid import UUID

from quipu.runtime.rng import SeededRng

T = TypeVar("T")


class Dice:
    """A source of random values that are the same for the same seed; a `runtime.rng.Rng`."""

    def __init__(self, seed: int, name: str = "world") -> None:
        self.seed = seed
        self.name = name
        digest = blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
        self._rng = SeededRng(int.from_bytes(digest, "big"))
        self.random = self._rng.random
        self.token = self._rng.token

    def fork(self, name: str) -> "Dice":
        """The derived generator called `name`; the same for the same name."""
        return Dice(self.seed, f"{self.name}/{name}")

    def uuid(self) -> UUID:
        return self._rng.uuid()

    def flip(self, likelihood: float) -> bool:
        """True with this probability."""
        return self.random() < likelihood

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.random()

    def below(self, end: int) -> int:
        """A whole number in [0, end)."""
        assert end > 0, end
        return int(self.random() * end)

    def choose(self, values: Sequence[T]) -> T:
        return values[self.below(len(values))]

    def shuffled(self, values: Sequence[T]) -> list[T]:
        rest = list(values)
        return [rest.pop(self.below(len(rest))) for _ in range(len(values))]

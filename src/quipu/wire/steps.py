"""Encoders that work in steps, so that others have their turn while a large answer is made.

Such an encoder is a generator that yields after every step, and returns what it made.
"""

from collections.abc import Generator
from typing import Final, TypeVar

STEP_PARTS: Final = 64  # partitions that are encoded in one step

T = TypeVar("T")


def last(steps: Generator[None, None, T]) -> T:
    """What `steps` return, made in one go."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result

"""Fences: which keys can never be committed any more, with one row for each writer.

An object that is gone from the store must never be committed: its offsets could not be read.  But
a commit may arrive late: from a process that was paused, or from a network that kept a packet for
minutes.  So whoever gives up a key fences it first.  The last name of a key is that of its writer,
one process, and the writer's sequence number in hexadecimal digits; a writer commits in the order
of its sequence numbers.  A fence is a writer with a sequence number: objects of that writer up to
it which the control plane does not know are refused (diskless.C10).

An object below a fence that would have been committed later is refused as well: its batches get an
error that clients retry.  A key of another form is fenced alone.

Not here: the names of objects (objects/names.py), and when keys are given up (cleaning/).
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

SEQUENCE_DIGITS: Final = 16
_WRITTEN: Final = re.compile(rf"(.+)-([0-9a-f]{{{SEQUENCE_DIGITS}}})", re.DOTALL)
_SEQUENCE_END: Final = 1 << 63  # the databases have signed numbers


class Fence(NamedTuple):
    """Keys of `writer` up to `sequence` are refused unless they are known."""

    writer: str
    sequence: int


def fence_of(key: str) -> Fence:
    """The fence that a key needs, and that refuses it."""
    found = _WRITTEN.fullmatch(key.rpartition("/")[2])
    if found is not None and (sequence := int(found[2], 16)) < _SEQUENCE_END:
        return Fence(found[1], sequence)
    return Fence(f"={key}", 0)  # "=" begins no writer's name: this one key


def fences_of(keys: Iterable[str]) -> list[Fence]:
    """The highest fence of each writer that `keys` need, in the order of the writers."""
    highest: dict[str, int] = {}
    for key in keys:
        writer, sequence = fence_of(key)
        highest[writer] = max(sequence, highest.get(writer, 0))
    return [Fence(*each) for each in sorted(highest.items())]  # so that rows are locked in order

"""Notices commits that nobody told of: their node ended between its commit and its notification.

Pure.  Objects have numbers that grow; each look at the numbers of the last objects is compared with
those that were heard of.  A number that was there already at the look before, and that was not
heard of since, is a missed commit.  Numbers become visible in any order, so looks overlap.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

LOOKS: Final = 5  # that overlap: a commit that takes longer than so many may be missed


class MissedCommits:
    """What was heard of, and what was seen, of the last few looks."""

    def __init__(self, newest: int) -> None:
        """Everything up to the object `newest` is known."""
        self._tops: deque[int] = deque([newest], maxlen=LOOKS)
        self._heard: set[int] = set()
        self._before: set[int] = set()

    @property
    def floor(self) -> int:
        """The next look is at the objects after this one."""
        return self._tops[0]

    def heard(self, objects: Iterable[int]) -> None:
        self._heard.update(objects)

    def look(self, found: Iterable[int]) -> bool:
        """Whether one of the objects that are there was missed; it counts as heard of then."""
        now = set(found)
        missed = (now & self._before) - self._heard
        self._heard |= missed
        self._before = now
        self._tops.append(max(now, default=self._tops[-1]))
        self._heard = {each for each in self._heard if each > self.floor}
        return bool(missed)

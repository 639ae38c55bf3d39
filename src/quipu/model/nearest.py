"""What somebody may have meant who wrote a name that nobody knows."""

import difflib
from collections.abc import Iterable
from typing import Final

LENGTH_MAX: Final = 100  # what is longer is no misspelling, and comparing it is slow


def nearest(word: str, candidates: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The candidate that is most like a word, whatever their case; None if none is like it.

    >>> nearest("Ordres", ["orders", "customers"])
    'orders'
    """
    by_folded = {each.lower(): each for each in candidates}
    near = difflib.get_close_matches(word[:LENGTH_MAX].lower(), by_folded, n=1, cutoff=cutoff)
    return by_folded[near[0]] if near else None

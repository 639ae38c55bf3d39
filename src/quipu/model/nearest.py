"""Finds the known name that is nearest to a misspelt one."""

import difflib
from collections.abc import Iterable
from typing import Final

LENGTH_MAX: Final = 100  # characters that are compared: comparing long texts is slow


def nearest(word: str, candidates: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The candidate most similar to `word`, ignoring case; None if none is similar enough.

    >>> nearest("Ordres", ["orders", "customers"])
    'orders'
    """
    by_folded = {each.lower(): each for each in candidates}
    near = difflib.get_close_matches(word[:LENGTH_MAX].lower(), by_folded, n=1, cutoff=cutoff)
    return by_folded[near[0]] if near else None

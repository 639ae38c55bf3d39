"""Sorting by fingerprint and finding in sorted fingerprints, in numpy: the twin of `_sorted.pyx`.

A fingerprint is two numbers, first and second, each as good as random; that two rows share the
first and not the second happens once in 2**64 pairs, and in tests.
"""

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]


def sort_pairs(first: U64, second: U64) -> I64:
    """The stable order of rows by (first, second)."""
    order: I64 = np.argsort(first, kind="stable")
    ranked, rest = first[order], second[order]
    if ((ranked[1:] == ranked[:-1]) & (rest[1:] < rest[:-1])).any():
        return np.lexsort((second, first))
    return order


def find_pairs(
    run_first: U64, run_second: U64, first: U64, second: U64, rest: I64,
) -> tuple[I64, I64, I64]:
    """Look for the pairs first[rest], second[rest] in a run that is sorted and has each pair once.

    Gives the places of those that are there, which they are, and which are not.  It is fast if
    the pairs that are looked for are sorted, too.
    """
    end = len(run_first) - 1
    if end < 0:
        none = np.zeros(0, np.int64)
        return none, none, rest
    wanted, other = first[rest], second[rest]
    place = np.searchsorted(run_first, wanted)
    at = np.minimum(place, end)
    near = run_first[at] == wanted
    hit = near & (run_second[at] == other)
    left = np.flatnonzero(near & ~hit)
    while len(left):  # half of a fingerprint in common: look at the neighbours
        place[left] += 1
        left = left[place[left] <= end]
        left = left[run_first[place[left]] == wanted[left]]
        found = run_second[place[left]] == other[left]
        hit[left[found]] = True
        left = left[~found]
    return place[hit], rest[hit], rest[~hit]

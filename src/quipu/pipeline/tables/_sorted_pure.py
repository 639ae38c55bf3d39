"""Sorts and searches fingerprints in numpy: the twin of `_sorted.pyx`.

A fingerprint is two random numbers, first and second; two rows have the same first and different
second with a chance of 2**-64 a pair, and in tests.
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

    Returns the indexes in the run of the pairs that are found, the indexes of these pairs, and the
    indexes of the others.  It is fast if the pairs to find are sorted, too.
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
    while len(left):  # the first half is equal, the second differs: try the next entries
        place[left] += 1
        left = left[place[left] <= end]
        left = left[run_first[place[left]] == wanted[left]]
        found = run_second[place[left]] == other[left]
        hit[left[found]] = True
        left = left[~found]
    return place[hit], rest[hit], rest[~hit]

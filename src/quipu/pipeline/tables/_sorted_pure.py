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


def find_pairs(run_first: U64, run_second: U64, first: U64, second: U64) -> I64:
    """The place of each pair in a run that is sorted and has each pair once; -1: it is not there.

    The pairs that are looked for are sorted, too: that makes it fast.
    """
    end = len(run_first) - 1
    if end < 0:
        return np.full(len(first), -1, np.int64)
    place = np.searchsorted(run_first, first)
    at = np.minimum(place, end)
    near = run_first[at] == first
    hit = near & (run_second[at] == second)
    rest = np.flatnonzero(near & ~hit)
    while len(rest):  # half of a fingerprint in common: look at the neighbours
        place[rest] += 1
        rest = rest[place[rest] <= end]
        rest = rest[run_first[place[rest]] == first[rest]]
        found = run_second[place[rest]] == second[rest]
        hit[rest[found]] = True
        rest = rest[~found]
    return np.where(hit, place, -1)

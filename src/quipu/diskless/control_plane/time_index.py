"""Finds the first run of a log that is not before a time in a number of steps that hardly grows.

The runs of a log are numbered from 1 on, without gaps.  Run n also stores the largest timestamp of
the runs (n - b, n], where b is the lowest bit of n: a Fenwick tree, whose nodes are the runs.

    run   1  2  3  4  5  6  7  8      node 4 has the maximum of runs 1 to 4, node 6 of 5 and 6
    node  .  1-2 . 1-4 . 5-6 . 1-8

A node is written with its run and never changes.  Runs go only from the beginning, so the nodes
that lie wholly in what is left are right whatever went before; a search uses no others, and the
timestamps of single runs.  It looks at about log2(n) squared of them at most.
"""

from collections.abc import Callable, Iterator, Sequence

# The largest timestamp of so many runs, a power of 2, up to and with the run of a number: its own
# timestamp if it is one run, else its node.
Largest = Callable[[int, int], int]


def children(number: int) -> list[int]:
    """The nodes that a node's maximum is made of, besides its own run."""
    found, step = [], 1
    while not number & step and step < number:
        found.append(number - step)
        step *= 2
    return found


def node_maxima(timestamps: Sequence[int]) -> list[int]:
    """The nodes of runs that are numbered from 1 on."""
    nodes: list[int] = []
    for number, timestamp in enumerate(timestamps, 1):
        nodes.append(max([timestamp, *(nodes[child - 1] for child in children(number))]))
    return nodes


def first_at_least(timestamp: int, first: int, last: int, largest: Largest) -> int | None:
    """The first of the runs `first` to `last` whose timestamp is at least `timestamp`."""
    for before, size in _blocks(first, last):
        if largest(before + size, size) >= timestamp:
            break
    else:
        return None
    while size > 1:  # it is one of (before, before + size]
        size //= 2
        if largest(before + size, size) < timestamp:
            before += size
    return before + 1


def maximum(first: int, last: int, largest: Largest) -> int | None:
    """The largest timestamp of the runs `first` to `last`."""
    return max((largest(before + size, size) for before, size in _blocks(first, last)),
               default=None)


def _blocks(first: int, last: int) -> Iterator[tuple[int, int]]:
    """Nodes and single runs that together are `first` to `last`: the run before each, its size."""
    before = first - 1
    while before < last:
        size = (before & -before) // 2 or 1 if before else 1 << (last.bit_length() - 1)
        while before + size > last:
            size //= 2
        yield before, size
        before += size

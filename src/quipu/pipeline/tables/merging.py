"""Folds a batch of events into runs of entries, and merges runs: pure, on whole columns.

    winners      of several events of one identity, the one that counts
    lookup       the entries of identities in the runs of a bucket
    fold_latest  events of a table that keeps the latest row of each identity
    fold_counts  events of a table that counts rows
    merge_runs   several runs to one

A `Fold` is the result: entries for a new run, in order of fingerprints, which rows they need, and
what they replace.  Entries that change nothing are left out: a delete of an unknown identity, an
event that is too old (ordered tables), a count that does not change.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from quipu.pipeline.envelopes.events import Action
from quipu.pipeline.tables.contract import NO_ROW
from quipu.pipeline.tables.fingerprint_search import find_pairs, sort_pairs

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Entries:
    """Entries, column by column.  In a run they are sorted by (first, second), each pair once.

    `extra`: (order, offset) in ordered tables, (count,) in tables that count, else nothing.
    """

    first: U64
    second: U64
    pointer: I64
    action: U8
    extra: tuple[I64, ...] = ()

    def take(self, rows: I64 | Mask) -> "Entries":
        return Entries(self.first[rows], self.second[rows], self.pointer[rows],
                       self.action[rows], tuple(each[rows] for each in self.extra))

    def __len__(self) -> int:
        return len(self.first)


class Fold(NamedTuple):
    """The changes of a batch of events to a bucket."""

    entries: Entries  # with the old pointers, or NO_ROW if the row is in an event
    row: I64  # the index of the event with the entry's row; -1: the pointer is right
    before: I64  # the pointer of the row that was visible before, NO_ROW if there was none
    before_count: I64  # how many copies were visible before
    released: I64  # pointers to rows that become dead
    rows_added: int  # the change of the number of visible rows
    errors_added: int


    def invariants(self, events: int) -> None:
        """Assert what holds of every fold of `events` events."""
        count = len(self.entries)
        assert is_run(self.entries)  # pipeline.T2
        assert len(self.row) == len(self.before) == len(self.before_count) == count
        assert count <= events, (count, events)
        assert count == 0 or -1 <= self.row.min() <= self.row.max() < events
        assert len(self.released) <= count, (len(self.released), count)


def is_run(entries: Entries) -> bool:
    """Are entries in order of their fingerprints, each of which occurs once?"""
    first, second = entries.first, entries.second
    rises = first[1:] > first[:-1]
    return bool(rises.all()) or bool(
        (rises | ((first[1:] == first[:-1]) & (second[1:] > second[:-1]))).all())


def concatenate(parts: Sequence[Entries]) -> Entries:
    if len(parts) == 1:
        return parts[0]
    return Entries(
        np.concatenate([part.first for part in parts]),
        np.concatenate([part.second for part in parts]),
        np.concatenate([part.pointer for part in parts]),
        np.concatenate([part.action for part in parts]),
        tuple(np.concatenate(columns)
              for columns in zip(*(part.extra for part in parts), strict=True)),
    )


def sort_by_fingerprint(first: U64, second: U64) -> tuple[I64, Mask]:
    """A stable order by fingerprint, and which positions are the last of their fingerprint."""
    order = sort_pairs(first, second)
    ranked, rest = first[order], second[order]
    last = np.ones(len(first), np.bool_)
    last[:-1] = (ranked[1:] != ranked[:-1]) | (rest[1:] != rest[:-1])
    return order, last


def winners(first: U64, second: U64, priority: tuple[I64, ...] = ()) -> I64:
    """For each identity the event that counts, by fingerprint.

    It is the last one; with `priority` (order, offset) the greatest, the last of equals.
    """
    order, last = sort_by_fingerprint(first, second)
    if not priority or last.all():
        return order[last]
    group: I64 = np.cumsum(last) - last  # a number for each identity
    ranked = np.lexsort((*(each[order] for each in reversed(priority)), group))
    return order[ranked][last]  # groups are as long as before, their greatest is last


def find(run: Entries, first: U64, second: U64) -> I64:
    """The index of each fingerprint in a run, -1 if it is not there; fast if they are sorted."""
    found = np.full(len(first), -1, np.int64)
    at, to, _ = find_pairs(run.first, run.second, first, second, np.arange(len(first)))
    found[to] = at
    return found


def lookup(runs: Sequence[Entries], first: U64, second: U64, extras: int) -> Entries:
    """The entries of sorted fingerprints in runs, newest first; DELETE for an unknown one."""
    count = len(first)
    pointer = np.full(count, NO_ROW, np.int64)
    action = np.full(count, Action.DELETE, np.uint8)
    extra = tuple(np.full(count, _NEVER, np.int64) for _ in range(extras))
    rest = np.arange(count)
    for run in runs:
        at, to, rest = find_pairs(run.first, run.second, first, second, rest)
        pointer[to] = run.pointer[at]
        action[to] = run.action[at]
        for mine, its in zip(extra, run.extra, strict=True):
            mine[to] = its[at]
    return Entries(first, second, pointer, action, extra)


_NEVER = np.iinfo(np.int64).min  # the order of an unknown identity


def fold_latest(
    runs: Sequence[Entries], first: U64, second: U64, action: U8,
    priority: tuple[I64, ...] = (),
) -> Fold:
    """Fold events into a table that keeps the latest row of each identity.

    A delete of a known identity is stored, as an entry without row; in ordered tables every delete,
    because an older row may still come.
    """
    event = winners(first, second, priority)
    old = lookup(runs, first[event], second[event], len(priority))
    was_seen = old.action == Action.ROW
    kept: Mask
    if priority:
        kept = _not_below(tuple(each[event] for each in priority), old.extra)
    else:
        kept = (action[event] != Action.DELETE) | (old.action != Action.DELETE)
    if not kept.all():
        event, old, was_seen = event[kept], old.take(kept), was_seen[kept]
    now = action[event]
    deleted = now == Action.DELETE
    return Fold(
        entries=Entries(old.first, old.second, np.full(len(event), NO_ROW, np.int64), now,
                        tuple(each[event] for each in priority)),
        row=np.where(deleted, -1, event),
        before=np.where(was_seen, old.pointer, NO_ROW),
        before_count=was_seen.astype(np.int64),
        released=old.pointer[old.pointer >= 0],
        rows_added=int(np.count_nonzero(now == Action.ROW) - np.count_nonzero(was_seen)),
        errors_added=int(np.count_nonzero(now == Action.ERROR)
                         - np.count_nonzero(old.action == Action.ERROR)),
    )


def _not_below(new: tuple[I64, ...], old: tuple[I64, ...]) -> Mask:
    order, offset = new
    old_order, old_offset = old
    kept: Mask = (order > old_order) | ((order == old_order) & (offset >= old_offset))
    return kept


def fold_counts(runs: Sequence[Entries], first: U64, second: U64, diff: I64) -> Fold:
    """Fold differences into a table that counts rows.

    A count may fall below zero, if a row is removed before it is added; such a row is stored, but
    not visible.
    """
    order, last = sort_by_fingerprint(first, second)
    ends = np.flatnonzero(last)
    sums = np.cumsum(diff[order])[ends]
    change = np.diff(sums, prepend=0)
    event = order[ends]
    moved = change != 0
    event, change = event[moved], change[moved]
    old = lookup(runs, first[event], second[event], 1)
    known = old.action == Action.ROW
    old_count = np.where(known, old.extra[0], 0)
    count = old_count + change
    gone = count == 0
    before_count = np.maximum(old_count, 0)
    return Fold(
        entries=Entries(old.first, old.second, np.where(gone, NO_ROW, old.pointer),
                        np.where(gone, Action.DELETE, Action.ROW).astype(np.uint8), (count,)),
        row=np.where(known | gone, -1, event),
        before=old.pointer,
        before_count=before_count,
        released=old.pointer[gone & known],
        rows_added=int(np.maximum(count, 0).sum() - before_count.sum()),
        errors_added=0,
    )


def merge_runs(runs: Sequence[Entries], *, bottom: bool, keep_deletes: bool) -> Entries:
    """Merge several neighbouring runs, newest first, into one.

    At the `bottom`, without an older run, deletes hide nothing any more and are dropped, unless
    their order is needed to compare late events with.
    """
    together = concatenate(list(reversed(runs)))
    order, last = sort_by_fingerprint(together.first, together.second)
    kept = order[last]
    if bottom and not keep_deletes:
        kept = kept[together.action[kept] != Action.DELETE]
    merged = together.take(kept)
    assert is_run(merged)  # pipeline.T2
    assert len(merged) <= len(together)
    return merged

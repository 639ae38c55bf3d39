"""Folding a batch of events into runs of entries: pure, by whole columns, no loop per row.

    winners      of several events of one identity, which counts
    lookup       what the runs of a bucket know about identities
    fold_latest  events of a table that keeps the latest row of each identity
    fold_counts  events of a table that counts rows
    merge_runs   several runs to one

A `Fold` is what a batch does: entries for a new run, in order of fingerprints, which rows they
need, and what they replace.  Entries that change nothing are left out: a delete of something
unknown, an event that came too late (ordered tables), a count that stays.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from quipu.pipeline.envelopes.events import Action
from quipu.pipeline.tables.by_fingerprint import find_pairs, sort_pairs
from quipu.pipeline.tables.contract import NO_ROW

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
    """What a batch of events does to a bucket."""

    entries: Entries  # pointers are still those that were; NO_ROW where `row` says otherwise
    row: I64  # which of the events has the entry's row; -1: the pointer is right as it is
    before: I64  # the pointer that was seen before, NO_ROW if nothing was
    before_count: I64  # how many copies were seen before
    released: I64  # pointers that nothing points to from now on
    rows_added: int  # rows to be seen, more or less than before
    errors_added: int


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
    """A stable order by fingerprint, and which places in it are the last of their fingerprint."""
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
    group: I64 = np.cumsum(last) - last  # places of one identity have one number
    ranked = np.lexsort((*(each[order] for each in reversed(priority)), group))
    return order[ranked][last]  # groups are as long as before, their greatest is last


def find(run: Entries, first: U64, second: U64) -> I64:
    """The place of each fingerprint in a run, -1 where it is not; fast if they are sorted."""
    found = np.full(len(first), -1, np.int64)
    at, to, _ = find_pairs(run.first, run.second, first, second, np.arange(len(first)))
    found[to] = at
    return found


def lookup(runs: Sequence[Entries], first: U64, second: U64, extras: int) -> Entries:
    """What runs, newest first, know about sorted fingerprints: DELETE where nothing."""
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


_NEVER = np.iinfo(np.int64).min  # the order of what was never seen


def fold_latest(
    runs: Sequence[Entries], first: U64, second: U64, action: U8,
    priority: tuple[I64, ...] = (),
) -> Fold:
    """What events do to a table that keeps the latest row of each identity.

    A delete is kept, as an entry without row, where something was; in ordered tables always,
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
    """What differences do to a table that counts rows.

    A count may fall below zero, when a row is taken away before it is added; such a row is
    remembered, and not seen.
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
    """Several neighbouring runs, newest first, to one.

    At the `bottom`, where no older run is, deletes have nothing left to hide and are dropped,
    unless they must tell their order to events that come late.
    """
    together = concatenate(list(reversed(runs)))
    order, last = sort_by_fingerprint(together.first, together.second)
    kept = order[last]
    if bottom and not keep_deletes:
        kept = kept[together.action[kept] != Action.DELETE]
    return together.take(kept)

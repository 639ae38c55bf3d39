"""Tables against dicts: rows, changes and errors of every version, whatever comes.

Limits are made small, so that runs are merged and data rewritten all the time.
"""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.pipeline.envelopes.events import Action, EventShape, Slot
from quipu.pipeline.tables import compaction, reading, sections, store
from tests.pipeline.tables.table_maker import (
    COUNTS,
    LATEST,
    ORDERED,
    STRICT,
    Event,
    Model,
    Table,
    difference,
)

SMALL = [
    (compaction, "RUN_SIZE_MIN", 2), (compaction, "FANOUT", 3), (compaction, "FILES_MAX", 3),
    (compaction, "FILES_MERGED", 2), (compaction, "DEAD_ROWS_MIN", 1),
    (compaction, "RELOCATED_MIN", 3),
    (sections, "DATA_ROWS_MAX", 3), (reading, "BATCH_ROWS_MAX", 3),
    (store, "_NUMBERS_COUNTED_MAX", 4),
]


@pytest.fixture(autouse=True, scope="module")
def small_limits() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in SMALL:
            patch.setattr(module, name, value)
        for flush in ("fsync", "fdatasync"):  # test_crashes.py is about those
            patch.setattr(os, flush, lambda _descriptor: None)
        yield


def batches(actions: list[Action]) -> st.SearchStrategy[list[list[list[Event]]]]:
    """Batches of chunks of events, on few keys so that they meet."""
    event = st.builds(
        Event, key=st.sampled_from("abcdefgh"), action=st.sampled_from(actions),
        value=st.integers(0, 3), order=st.integers(0, 5), offset=st.integers(0, 3),
        diff=st.integers(-2, 3), slot=st.sampled_from([Slot.KEY, Slot.KEY, Slot.RAW]))
    chunks = st.lists(st.lists(event, min_size=1, max_size=8), min_size=1, max_size=3)
    return st.lists(chunks, min_size=1, max_size=9)


def check(shape: EventShape, given_batches: list[list[list[Event]]], *, keep: int) -> None:
    with TemporaryDirectory() as place:
        table, model = Table(Path(place), shape), Model(shape)
        seen: dict[int, Counter[tuple[str, int]]] = {-1: Counter()}
        for index, chunks in enumerate(given_batches):
            version = 3 * index  # numbers need not be dense
            table = Table(Path(place), shape)  # as after a restart
            table.merge(version, chunks)
            table.merge(version, [[Event("z")]])  # already committed: nothing happens
            for event in (event for chunk in chunks for event in chunk):
                model.apply(event)
            seen[version] = model.rows()
            assert table.errors(version) == model.errors()
            table.clean(keep)
        kept = sorted(seen)[-min(keep, len(given_batches)):]
        for version in kept:
            assert table.rows(version) == seen[version]
            before = sorted(seen)[sorted(seen).index(version) - 1]
            assert table.changes(before, version) == difference(seen[before], seen[version])
        assert table.changes(kept[0], kept[-1]) == difference(seen[kept[0]], seen[kept[-1]])


MANY = settings(max_examples=30, deadline=None)


@MANY
@given(batches([Action.ROW, Action.ROW, Action.DELETE]), st.integers(1, 9))
def test_a_table_of_latest_rows_is_a_dict(those: list[list[list[Event]]], keep: int) -> None:
    """I7: pipeline.T3, pipeline.T4: the latest message of a key counts, a delete takes the row
    away.
    """
    check(LATEST, those, keep=keep)


@MANY
@given(batches([Action.ROW, Action.ERROR, Action.DELETE]), st.integers(1, 9))
def test_errors_are_kept_by_key(those: list[list[list[Event]]], keep: int) -> None:
    """I15: an error replaces the row of its key until the next row or delete."""
    check(STRICT, those, keep=keep)


@MANY
@given(batches([Action.ROW, Action.ROW, Action.DELETE]), st.integers(1, 9))
def test_an_ordered_table_has_the_row_of_the_greatest_time(
    those: list[list[list[Event]]], keep: int,
) -> None:
    """I16: by event time, the offset breaks ties; deletes that came early still count."""
    check(ORDERED, those, keep=keep)


@MANY
@given(batches([Action.ROW]), st.integers(1, 9))
def test_a_table_that_counts_is_a_multiset(those: list[list[list[Event]]], keep: int) -> None:
    """I8: without a key rows have multiplicities; below zero they are remembered, not seen."""
    check(COUNTS, those, keep=keep)

"""The events of timed tables whose time is not closed yet, stored from one version to the next.

    <version>-<bucket>-….waiting    section `waiting`: events, in the order in which they came

All of them are written again with each version.
"""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from quipu.pipeline.envelopes.events import DIFF, IDENTITY, KIND, SLOT_UNIT, TIME, Action
from quipu.pipeline.tables.contract import BucketState, TableShape
from quipu.pipeline.tables.files import SectionWriter, open_file
from quipu.pipeline.tables.sections import event_fingerprints, numbers
from quipu.pipeline.tables.timing import TimeProgress, by_time, first_of_each


class Released(NamedTuple):
    """Events that take effect, and events that wait."""

    progress: TimeProgress
    effective: pa.Table  # events that take effect, in order
    waiting: pa.Table  # events whose time is still open


def released(
    home: Path, shape: TableShape, state: BucketState, events: pa.Table, version: int,
) -> tuple[BucketState, pa.Table]:
    """The state with the events that wait now, and the events that take effect, in order."""
    if state.waiting:
        before = open_file(home / state.waiting).section("waiting")
        events = pa.concat_tables([before, events])
    found = release(shape, TimeProgress.from_json(state.progress), events)
    still = found.waiting
    name = _write(home, version, state.bucket, still) if still.num_rows else ""
    return replace(state, waiting=name, progress=found.progress.to_json()), found.effective


def release(shape: TableShape, progress: TimeProgress, events: pa.Table) -> Released:
    """Which of some waiting and new events take effect."""
    place = shape.events.place
    actions = numbers(events, place(KIND)) % np.uint8(SLOT_UNIT)
    is_progress = actions == Action.PROGRESS
    messages = events.filter(pa.array(is_progress)).column(place(IDENTITY)).to_pylist()
    progress = progress.with_messages(messages)
    waiting = events.filter(pa.array(~is_progress))
    first, second = event_fingerprints(shape, waiting)
    time, diff = numbers(waiting, place(TIME)), numbers(waiting, place(DIFF))
    fresh = first_of_each(first, second, diff, time)
    fresh = fresh[time[fresh] >= progress.closed]
    progress = progress.advanced(time[fresh])
    closed = fresh[time[fresh] < progress.closed]
    closed = closed[by_time(time[closed], diff[closed])]
    effective = waiting.take(pa.array(closed))
    kinds = numbers(effective, place(KIND)) // np.uint8(SLOT_UNIT) * np.uint8(SLOT_UNIT)
    kinds += np.where(diff[closed] > 0, Action.ROW, Action.DELETE).astype(np.uint8)
    effective = effective.set_column(place(KIND), KIND.field, pa.array(kinds))
    still = waiting.take(pa.array(fresh[time[fresh] >= progress.closed]))
    return Released(progress, effective, still)


def _write(home: Path, version: int, bucket: int, events: pa.Table) -> str:
    writer = SectionWriter(events.num_rows)
    writer.add("waiting", events)
    return writer.write(home, version, bucket, "waiting")

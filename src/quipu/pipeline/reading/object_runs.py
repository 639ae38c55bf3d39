"""Batches of runs of a diskless log: they get their offsets, and look like those of a fetch.

Batches are stored as they were produced; their checksums are compared here (diskless.R4).
"""

from collections.abc import Iterator, Sequence
from typing import Final

from quipu.client.fetch import whole_batches
from quipu.diskless.reading.blocks import block_of
from quipu.diskless.values import BatchRun
from quipu.model.ids import Offset
from quipu.runtime.objects.store import Buffer

READ_SIZE: Final = 4 << 20  # bytes that are read and decoded together, if they are several runs


def run_groups(runs: Sequence[BatchRun]) -> Iterator[list[BatchRun]]:
    """The runs in groups of at most READ_SIZE bytes, or of one run."""
    group: list[BatchRun] = []
    size = 0
    for run in runs:
        if group and size + run.size > READ_SIZE:
            yield group
            group, size = [], 0
        group.append(run)
        size += run.size
    if group:
        yield group


def batches_of(
    runs: Sequence[BatchRun], data: Sequence[Buffer], first: int, end: int
) -> tuple[list[memoryview], int]:
    """The batches from the one that holds `first` on, below `end`, and the offset after them."""
    views, next_offset = [], first
    for run, each in zip(runs, data, strict=True):
        view = block_of(each, run).batches_from(Offset(max(first, run.base_offset)))
        size, next_offset = whole_batches(view, end)
        views.append(view[:size])
    return views, next_offset

"""What this node has committed itself, as runs and blocks: neither is asked for then."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from quipu.diskless.control_plane.interface import BatchOutcome
from quipu.diskless.reading.blocks import Block, placed_block
from quipu.diskless.values import (
    LEADER_EPOCH,
    NO_EPOCHS,
    BatchCoordinates,
    BatchRun,
    LogBounds,
    LogKey,
    NewObject,
)
from quipu.diskless.writing.buffer import BufferedLog
from quipu.model.ids import Offset


class CommittedRun(NamedTuple):
    """A run with its bytes, and what its commit says of the log's bounds."""

    run: BatchRun
    block: Block
    bounds: LogBounds


def committed_runs(
    new: NewObject, outcomes: Sequence[BatchOutcome], logs: Sequence[BufferedLog],
    epochs: Mapping[LogKey, int] = NO_EPOCHS,
) -> Iterator[CommittedRun]:
    """Yield what a commit has accepted; changes the data of `logs`, which has all of its batches.

    Batches that follow each other both in bytes and in offsets are one run.  `epochs` are the
    leader epochs of logs that have others than LEADER_EPOCH.
    """
    batches = iter(zip(new.batches, outcomes, strict=True))
    for log in logs:
        found: list[BatchCoordinates] = []
        first, end_offset = outcomes[0], -1
        for batch, outcome in islice(batches, len(log.batches)):
            code, base_offset, _, is_duplicate = outcome
            if code or is_duplicate:
                base_offset = Offset(-1)
            if found and base_offset != end_offset:
                yield _run(new.key, found, first, log, epochs)
                found = []
            if base_offset < 0:
                continue
            if not found:
                first = outcome
            found.append(batch)
            end_offset = base_offset + batch.record_count
        if found:
            yield _run(new.key, found, first, log, epochs)


def _run(
    key: str, batches: Sequence[BatchCoordinates], outcome: BatchOutcome, log: BufferedLog,
    epochs: Mapping[LogKey, int],
) -> CommittedRun:
    """The run of these batches, of which `outcome` is that of the first."""
    first, last, base_offset = batches[0], batches[-1], outcome.base_offset
    counts = [batch.record_count for batch in batches]
    end_offset = Offset(base_offset + sum(counts))
    size = last.position + last.size - first.position
    run = BatchRun(first.log, base_offset, end_offset, key, first.position, size, len(batches),
                   max(batch.max_timestamp for batch in batches))
    starts = [batch.position - log.position for batch in batches]
    starts.append(starts[0] + size)
    block = placed_block(
        log.data, starts, base_offset, counts, epochs.get(first.log, LEADER_EPOCH))
    log_start = max(Offset(0), outcome.log_start_offset)
    return CommittedRun(run, block, LogBounds(log_start, log_start, end_offset, size))

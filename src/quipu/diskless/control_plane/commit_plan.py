"""What a commit does, as a pure function of the logs and producers that it concerns.

Used by the control planes whose logic is in Python; PostgreSQL carries out the same plan in a
function of its own (migrations/postgres.py).

Outcomes are stored with their object as two numbers a batch, so that a commit that is repeated
returns them again (diskless.C2).
"""

from collections.abc import Callable, Mapping, Sequence
from struct import pack, unpack
from typing import NamedTuple

from quipu.diskless.control_plane.interface import COMMIT_BATCHES_MAX, BatchOutcome
from quipu.diskless.control_plane.sequences import ProducerHistory, judge, recall, remember
from quipu.diskless.values import BatchCoordinates, BatchRun, LogBounds, LogKey, NewObject
from quipu.model.errors import Code
from quipu.model.ids import Offset, ProducerId, TimestampMs

ProducerKey = tuple[LogKey, ProducerId]


class CommitPlan(NamedTuple):
    """What a commit adds."""

    outcomes: list[BatchOutcome]
    runs: list[BatchRun]  # of one log in the order of its offsets
    high_watermarks: dict[LogKey, Offset]  # of logs that get batches
    producers: dict[ProducerKey, ProducerHistory]  # those that have changed


def check_object(new: NewObject) -> None:
    """Our own writers never make an object that breaks this."""
    assert new.key, "an object has a key"
    assert len(new.batches) <= COMMIT_BATCHES_MAX, len(new.batches)
    for batch in new.batches:
        assert batch.record_count > 0, batch
        assert batch.size > 0, batch
        assert batch.position >= 0, batch


def logs_of(new: NewObject) -> list[LogKey]:
    """The logs that an object has batches of, each once, sorted."""
    return sorted({batch.log for batch in new.batches})


def producers_of(new: NewObject) -> list[ProducerKey]:
    """The producers of an object's batches with their logs, each once, sorted."""
    return sorted({(batch.log, batch.producer_id) for batch in new.batches
                   if batch.producer_id >= 0})


def plan_commit(
    new: NewObject, bounds: Mapping[LogKey, LogBounds],
    producers: Mapping[ProducerKey, ProducerHistory], now_ms: int,
) -> CommitPlan:
    """Give each batch its outcome, in order (diskless.C1, diskless.C3); `bounds` has known logs."""
    plan = CommitPlan([], [], {}, {})
    joiner = RunJoiner(new.key)
    for batch in new.batches:
        known = bounds.get(batch.log)
        if known is None:
            plan.outcomes.append(BatchOutcome(Code.UNKNOWN_TOPIC_OR_PARTITION))
            continue
        producer = (batch.log, batch.producer_id)
        history = plan.producers.get(producer) or producers.get(producer)
        code, duplicate_of = judge(history, batch)
        if code != Code.NONE:
            plan.outcomes.append(BatchOutcome(code))
        elif duplicate_of is not None:
            plan.outcomes.append(BatchOutcome(
                base_offset=duplicate_of.base_offset, log_start_offset=known.log_start_offset,
                is_duplicate=True))
        else:
            base = plan.high_watermarks.get(batch.log, known.high_watermark)  # diskless.C1
            plan.high_watermarks[batch.log] = Offset(base + batch.record_count)
            joiner.add(batch, base)
            if batch.producer_id >= 0:
                plan.producers[producer] = remember(history, batch, base, now_ms)
            plan.outcomes.append(BatchOutcome(
                base_offset=base, log_start_offset=known.log_start_offset))
    plan.runs.extend(joiner.runs)
    return plan


class RunJoiner:
    """Joins batches of one log that follow each other in bytes and offsets to runs."""

    def __init__(self, key: str) -> None:
        self._key = key
        self.runs: list[BatchRun] = []
        self._last: dict[LogKey, int] = {}  # index of each log's last run

    def add(self, batch: BatchCoordinates, base: Offset) -> None:
        index = self._last.get(batch.log)
        end = Offset(base + batch.record_count)
        if index is not None:
            run = self.runs[index]
            if run.position + run.size == batch.position and run.end_offset == base:
                self.runs[index] = run._replace(
                    end_offset=end, size=run.size + batch.size, batch_count=run.batch_count + 1,
                    max_timestamp=max(run.max_timestamp, batch.max_timestamp))
                return
        self._last[batch.log] = len(self.runs)
        self.runs.append(BatchRun(batch.log, base, end, self._key, batch.position, batch.size, 1,
                                  batch.max_timestamp))


class RestorePlan(NamedTuple):
    """What an object adds whose batches have offsets already."""

    runs: list[BatchRun]
    producers: dict[ProducerKey, ProducerHistory]


def plan_restore(
    entered: tuple[NewObject, Sequence[Offset]],
    producers: Mapping[ProducerKey, ProducerHistory], now_ms: int,
    *, is_free: Callable[[LogKey, Offset, Offset], bool],
) -> RestorePlan:
    """The runs and producers of an object's batches that are in use.

    `is_free` says whether a log exists that has no run between two offsets (diskless.C5).
    """
    new, offsets = entered
    joiner, changed = RunJoiner(new.key), dict[ProducerKey, ProducerHistory]()
    for batch, base in zip(new.batches, offsets, strict=True):
        if base < 0 or not is_free(batch.log, base, Offset(base + batch.record_count)):
            continue
        joiner.add(batch, base)
        if batch.producer_id >= 0:
            producer = (batch.log, batch.producer_id)
            history = changed.get(producer) or producers.get(producer)
            changed[producer] = recall(history, batch, base, now_ms)
    return RestorePlan(joiner.runs, changed)


def restored_outcomes(offsets: Sequence[Offset]) -> list[BatchOutcome]:
    """What a late repetition of an object's commit gets, once the object was restored."""
    return [BatchOutcome(base_offset=base) if base >= 0 else BatchOutcome(Code.KAFKA_STORAGE_ERROR)
            for base in offsets]


def age_ms(run: BatchRun, now_ms: int) -> TimestampMs:
    """When the newest record of a run was made; without timestamps, when the run was committed."""
    return run.max_timestamp if run.max_timestamp >= 0 else TimestampMs(now_ms)


# -- outcomes as numbers: a base offset times 2, plus 1 for a duplicate; or the code, negative


def pack_numbers(outcome: BatchOutcome) -> tuple[int, int]:
    """The two numbers that stand for an outcome."""
    code, base, log_start, is_duplicate = outcome
    return (-code if code else base * 2 + is_duplicate), log_start


def pack_outcomes(outcomes: Sequence[BatchOutcome]) -> bytes:
    """Outcomes as bytes, 16 each."""
    numbers = [number for each in outcomes for number in pack_numbers(each)]
    return pack(f"<{len(numbers)}q", *numbers)


def unpack_outcomes(packed: bytes) -> list[BatchOutcome]:
    numbers = unpack(f"<{len(packed) // 8}q", packed)
    return [outcome_of(*pair) for pair in zip(numbers[::2], numbers[1::2], strict=True)]


def outcome_of(number: int, log_start: int) -> BatchOutcome:
    """The outcome that two numbers stand for."""
    if number < 0:
        return BatchOutcome(Code(-number))
    return BatchOutcome(Code.NONE, Offset(number >> 1), Offset(log_start), bool(number & 1))

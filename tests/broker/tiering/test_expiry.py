"""Which remote segments expire: against a model that looks at every offset by itself."""

from typing import NamedTuple
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from quipu.broker.tiering.expiry import (
    ExpiryBounds,
    ExpiryPlan,
    LogHistory,
    RetentionRules,
    TierLedger,
    covered_end,
)
from quipu.model.ids import Epoch, Offset
from quipu.remote.metadata.segment_metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
)
from quipu.remote.metadata.states import COPY_FINISHED, COPY_STARTED, DELETE_STARTED

NOW_MS = 1_000_000
PARTITION = TopicIdPartition(UUID(int=7), 0, "t")


class Case(NamedTuple):
    """A log, as the epoch of every offset, and segments, which may be of another history."""

    epochs: list[int]  # of each offset of the log, from 0 on
    bounds: ExpiryBounds
    segments: list[RemoteLogSegmentMetadata]
    rules: RetentionRules
    being_copied: frozenset[UUID]

    @property
    def lineage(self) -> list[tuple[Epoch, Offset]]:
        """Epochs from that of the log start on, as a log has them."""
        found: dict[int, int] = {}
        for offset, epoch in enumerate(self.epochs):
            found.setdefault(epoch, offset)
        first = self.epochs[min(self.bounds.log_start, len(self.epochs) - 1)]
        return [(Epoch(epoch), Offset(start)) for epoch, start in found.items() if epoch >= first]

    def plan(self) -> ExpiryPlan:
        ledger = TierLedger(self.segments, self.lineage, self.bounds.log_end)
        ledger.invariants()
        return ledger.plan(self.lineage, self.bounds, self.rules, now_ms=NOW_MS,
                           being_copied=self.being_copied)


def segment(
    number: int, start: int, epochs: list[int], *, age_ms: int = 0, size: int = 1,
    state: object = COPY_FINISHED,
) -> RemoteLogSegmentMetadata:
    """A segment whose records, from `start` on, have these epochs."""
    starts: dict[int, int] = {}
    for offset, epoch in enumerate(epochs, start):
        starts.setdefault(epoch, offset)
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(PARTITION, UUID(int=number + 1)), start_offset=start,
        end_offset=start + len(epochs) - 1, max_timestamp_ms=NOW_MS - age_ms, broker_id=1,
        event_timestamp_ms=NOW_MS, segment_size_bytes=size, segment_leader_epochs=starts,
        state=state, txn_index_empty=True)  # type: ignore[arg-type]


@st.composite
def histories(draw: st.DrawFn) -> list[int]:
    """The epochs of the records of a log, which never fall."""
    steps = draw(st.lists(st.sampled_from([0, 0, 0, 0, 1, 2]), min_size=1, max_size=24))
    epoch, found = 0, []
    for step in steps:
        epoch += step
        found.append(epoch)
    return found


@st.composite
def cases(draw: st.DrawFn) -> Case:
    epochs = draw(histories())
    other = draw(st.one_of(st.just(epochs), histories()))
    segments = []
    for number in range(draw(st.integers(0, 8))):
        history = epochs if draw(st.booleans()) else other
        start = draw(st.integers(0, len(history) - 1))
        end = draw(st.integers(start + 1, len(history)))
        segments.append(segment(
            number, start, history[start:end], age_ms=draw(st.integers(0, 100)),
            size=draw(st.integers(1, 9)),
            state=draw(st.sampled_from([COPY_FINISHED] * 4 + [COPY_STARTED, DELETE_STARTED]))))
    being_copied = frozenset(
        each.segment_id.id for each in segments if draw(st.integers(0, 3)) == 0)
    bounds = ExpiryBounds(Offset(draw(st.integers(0, len(epochs)))), Offset(len(epochs)),
                       draw(st.integers(0, 20)))
    rules = RetentionRules(draw(st.sampled_from([-1, 0, 20, 60])),
                           draw(st.sampled_from([-1, 0, 10, 30])))
    return Case(epochs, bounds, segments, rules, being_copied)


def epochs_of(each: RemoteLogSegmentMetadata) -> list[int]:
    """The epoch of each record of a segment."""
    return [max((epoch for epoch, start in each.segment_leader_epochs.items() if start <= offset))
            for offset in range(each.start_offset, each.end_offset + 1)]


def is_own(case: Case, each: RemoteLogSegmentMetadata) -> bool:
    """Whether each record at or above the first epoch that the log knows is the log's own."""
    if each.end_offset >= len(case.epochs):
        return False
    first_epoch, first_start = case.lineage[0]
    found = [(offset, epoch) for offset, epoch in enumerate(epochs_of(each), each.start_offset)
             if epoch >= first_epoch or offset >= first_start]
    return bool(found) and all(
        epoch >= first_epoch and case.epochs[offset] == epoch for offset, epoch in found)


@given(cases())
def test_the_lineage_is_that_of_every_record(case: Case) -> None:
    """R14: broker.tiering.X2."""
    for each in case.segments:
        assert LogHistory(case.lineage, case.bounds.log_end).has(each) == is_own(case, each), each


@given(cases())
def test_nothing_goes_that_can_be_read(case: Case) -> None:
    """R13: broker.tiering.X1: a finished segment goes only if it is below the new log start, or of
    epochs that the log does not know any more; what is being copied here stays.
    """
    plan = case.plan()
    assert case.bounds.log_start <= plan.log_start <= max(case.bounds)
    gone = set(plan.deleted)
    assert len(gone) == len(plan.deleted)
    first_epoch = case.lineage[0][0]
    for each in case.segments:
        match each.state:
            case _ if each.state is DELETE_STARTED:
                assert each in gone
            case _ if each.state is COPY_STARTED:
                assert (each in gone) == (each.segment_id.id not in case.being_copied)
            case _:
                is_below = each.end_offset < case.bounds.log_start
                is_older = max(each.segment_leader_epochs) < first_epoch
                expired = is_own(case, each) and each.end_offset < plan.log_start
                assert (each in gone) == (is_below or is_older or expired)


@given(cases())
def test_retention_takes_the_oldest_that_are_too_old_or_too_many(case: Case) -> None:
    """R13: by time and by size, oldest first; the first that stays ends it."""
    plan = case.plan()
    old = case.bounds.log_start
    first_epoch = case.lineage[0][0]
    own = sorted((each for each in case.segments if each.state is COPY_FINISHED
                  and is_own(case, each) and each.end_offset >= old
                  and max(each.segment_leader_epochs) >= first_epoch),
                 key=lambda each: (each.start_offset, each.end_offset))
    total, covered = case.bounds.local_only_bytes, -1
    for each in own:
        if each.end_offset > covered:
            total, covered = total + each.segment_size_bytes, each.end_offset
    expected = old
    for each in own:
        too_old = case.rules.retention_ms >= 0 and (
            NOW_MS - each.max_timestamp_ms > case.rules.retention_ms)
        too_many = case.rules.retention_bytes >= 0 and (
            total - each.segment_size_bytes >= case.rules.retention_bytes)
        if not (too_old or too_many):
            break
        total -= each.segment_size_bytes
        expected = max(expected, Offset(each.end_offset + 1))
    assert plan.log_start == expected
    if case.rules == RetentionRules(-1, -1):
        assert plan.log_start == old


@given(cases(), st.integers(0, 24))
def test_covered_is_what_every_offset_can_be_read_from(case: Case, start: int) -> None:
    """R15: broker.tiering.P4: up to the first offset that no finished segment of the log has."""
    end = covered_end(case.segments, case.lineage, Offset(start), case.bounds.log_end)
    held = {offset for each in case.segments
            if each.state is COPY_FINISHED and is_own(case, each)
            for offset in range(each.start_offset, each.end_offset + 1)}
    assert all(offset in held for offset in range(start, end))
    assert end not in held


def test_a_second_copy_counts_once() -> None:
    """R14: two copies of the same offsets have the size of one."""
    twice = [segment(number, 0, [0] * 5, size=10) for number in range(2)]
    plan = Case([0] * 10, ExpiryBounds(Offset(0), Offset(10), 5), twice, RetentionRules(-1, 15),
                frozenset()).plan()
    assert (plan.log_start, plan.deleted, plan.kept_bytes) == (0, (), 10)


@given(cases(), st.data())
def test_a_ledger_that_is_kept_is_one_that_is_made_anew(case: Case, data: st.DataObject) -> None:
    """R13: broker.tiering.X3: while segments are copied, expire and are deleted."""
    segments = {each.segment_id.id: each for each in case.segments}
    ledger = TierLedger(case.segments, case.lineage, case.bounds.log_end)
    start = case.bounds.log_start
    for number in range(data.draw(st.integers(1, 6))):
        case.epochs.extend([case.epochs[-1]] * data.draw(st.integers(1, 4)))
        end = len(case.epochs)
        copied = segment(100 + number, begin := data.draw(st.integers(0, end - 2)),
                         case.epochs[begin:end - 1], age_ms=data.draw(st.integers(0, 100)))
        ledger.copied(copied)
        ledger.invariants()
        segments[copied.segment_id.id] = copied
        case = case._replace(bounds=ExpiryBounds(start, Offset(end), case.bounds.local_only_bytes),
                             segments=list(segments.values()))
        plan = ledger.plan(case.lineage, case.bounds, case.rules, now_ms=NOW_MS,
                           being_copied=case.being_copied)
        anew = case.plan()
        assert (plan.log_start, plan.kept_bytes) == (anew.log_start, anew.kept_bytes)
        assert set(plan.deleted) == set(anew.deleted)
        ledger.deleted(plan.deleted)
        ledger.invariants()
        for each in plan.deleted:
            del segments[each.segment_id.id]
        assert len(ledger) == len(segments)
        start = max(plan.log_start, Offset(data.draw(st.integers(0, end))))

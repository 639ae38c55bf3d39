"""Idempotent producers: sequences, epochs, duplicates, expiry."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quipu.model.errors import Code, MalformedBytes, RequestError
from quipu.storage import producers
from quipu.storage.producers import BATCHES_KEPT, SEQUENCE_COUNT, ProducerStates
from quipu.wire.record_batch import BatchHeader
from tests.storage.builders import NOW_MS, append, data_disk, open_log, read_all

LAST = SEQUENCE_COUNT - 1


def header(producer: int, epoch: int, sequence: int, count: int = 1) -> BatchHeader:
    return BatchHeader(0, 0, 0, 2, 0, 0, count - 1, 0, 0, producer, epoch, sequence, count)


class Case(NamedTuple):
    why: str
    seen: list[tuple[int, int, int]]  # epoch, sequence, count; offsets are given in order
    sent: tuple[int, int, int]
    want: int | Code | None  # the offset of a duplicate, an error, or None: accepted


CASES = [
    Case("a new producer starts at 0", [], (0, 0, 3), None),
    Case("a producer whose state is gone starts anywhere", [], (7, 41, 1), None),
    Case("sequences follow", [(0, 0, 3)], (0, 3, 1), None),
    Case("a gap", [(0, 0, 3)], (0, 4, 1), Code.OUT_OF_ORDER_SEQUENCE_NUMBER),
    Case("a part of the last batch", [(0, 0, 3)], (0, 2, 1), Code.OUT_OF_ORDER_SEQUENCE_NUMBER),
    Case("longer than the last batch", [(0, 0, 3)], (0, 0, 4), Code.OUT_OF_ORDER_SEQUENCE_NUMBER),
    Case("the last batch again", [(0, 0, 3)], (0, 0, 3), 0),
    Case("the fifth batch before", [(0, n, 1) for n in range(5)], (0, 0, 1), 0),
    Case("a batch in the middle", [(0, n, 1) for n in range(5)], (0, 2, 1), 2),
    Case("the sixth batch before is forgotten", [(0, n, 1) for n in range(6)], (0, 0, 1),
         Code.OUT_OF_ORDER_SEQUENCE_NUMBER),
    Case("an older epoch", [(3, 0, 1)], (2, 1, 1), Code.INVALID_PRODUCER_EPOCH),
    Case("an older epoch, at 0", [(3, 0, 1)], (2, 0, 1), Code.INVALID_PRODUCER_EPOCH),
    Case("a new epoch starts at 0", [(3, 0, 9)], (4, 0, 1), None),
    Case("a new epoch does not start elsewhere", [(3, 0, 1)], (4, 1, 1),
         Code.OUT_OF_ORDER_SEQUENCE_NUMBER),
    Case("after a new epoch the old batches are no duplicates", [(3, 0, 1), (4, 0, 1)], (4, 1, 1),
         None),
    Case("sequences wrap around", [(0, LAST, 1)], (0, 0, 1), None),
    Case("in the middle of a batch", [(0, LAST - 1, 5)], (0, 3, 1), None),
    Case("a duplicate across the wrap", [(0, LAST - 1, 5)], (0, LAST - 1, 5), 0),
    Case("0 is no wrap elsewhere", [(0, LAST - 1, 1)], (0, 0, 1),
         Code.OUT_OF_ORDER_SEQUENCE_NUMBER),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.why)
def test_a_batch_is_accepted_known_or_refused(case: Case) -> None:
    """K2: by Kafka's rules; and the same after the state went through its bytes."""
    states, offset = ProducerStates(), 0
    for epoch, sequence, count in case.seen:
        seen = header(1, epoch, sequence, count)
        assert states.check(seen, "t-0") is None
        states.note(seen, offset, NOW_MS)
        offset += count
    for each in (states, ProducerStates.decode(states.encode())):
        if isinstance(case.want, Code):
            with pytest.raises(RequestError, match="t-0: producer 1") as caught:
                each.check(header(1, *case.sent), "t-0")
            assert caught.value.code is case.want
        else:
            assert each.check(header(1, *case.sent), "t-0") == case.want


def test_a_duplicate_is_answered_with_its_first_offsets_and_not_written() -> None:
    """K2: through restarts with and without a clean stop, and after its records are gone."""
    disk = data_disk()
    log = open_log(disk)
    append(log, [b"x"] * 2)
    first = append(log, [b"a"] * 3, producer=(9, 0, 0))
    for _ in range(3):
        again = append(log, [b"a"] * 3, producer=(9, 0, 0))
        assert again.duplicate
        assert again[:2] == first[:2] == (2, 4)
        assert len(read_all(log)) == 5
        log = open_log(disk)
    for number in range(50):
        append(log, [b"other" * 9], producer=(8, 0, number))
    log.delete_records(log.end_offset, NOW_MS)
    assert log.apply_retention(NOW_MS) > 1
    assert append(open_log(disk), [b"a"] * 3, producer=(9, 0, 0))[:2] == (2, 4)


def test_a_batch_that_was_not_written_is_not_remembered() -> None:
    """K2: offsets and sequences move only with the bytes."""
    disk = data_disk()
    log = open_log(disk)
    disk.capacity = 10
    with pytest.raises(Exception, match="space"):
        append(log, [b"a"], producer=(9, 0, 0))
    disk.capacity = None
    appended = append(log, [b"a"], producer=(9, 0, 0))
    assert (appended.base_offset, appended.duplicate) == (0, False)


def test_producers_are_forgotten_after_their_time() -> None:
    """K2: producer.id.expiration.ms, by when they were last seen."""
    states = ProducerStates()
    states.note(header(1, 0, 0), 0, NOW_MS)
    states.note(header(2, 0, 0), 1, NOW_MS + 500)
    assert states.expire(NOW_MS + 999, 1000) == 0
    assert states.expire(NOW_MS + 1000, 1000) == 1
    assert [info.producer_id for info in states.infos()] == [2]
    assert states.check(header(1, 0, 7), "t-0") is None


def test_only_so_many_producers_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """K2: memory is bounded; those unseen the longest go first."""
    monkeypatch.setattr(producers, "PRODUCERS_MAX", 20)
    states = ProducerStates()
    for number in range(30):
        states.note(header(number, 0, 0), number, NOW_MS + number)
        states.note(header(0, 0, number), number, NOW_MS + number)
        assert len(states) <= 20
    kept = {info.producer_id for info in states.infos()}
    assert {0, 29, 28, 27} <= kept
    assert 1 not in kept


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(1, 4))))
def test_state_survives_its_bytes(batches: list[tuple[int, int, int]]) -> None:
    """K2, T7: what a checkpoint holds is the whole state."""
    states, sequences, offset = ProducerStates(), {}, 0
    for producer, epoch, count in batches:
        old_epoch, sequence = sequences.get(producer, (0, 0))
        if epoch < old_epoch:
            continue
        sequence = sequence if epoch == old_epoch else 0
        states.note(header(producer, epoch, sequence, count), offset, NOW_MS)
        sequences[producer] = (epoch, sequence + count)
        offset += count
    again = ProducerStates.decode(states.encode())
    assert again.infos() == states.infos()
    for producer in sequences:
        assert again.seen(producer) == states.seen(producer)
        assert len(again.seen(producer)) <= BATCHES_KEPT
    for size in range(len(states.encode())):
        data = states.encode()[:size]
        try:
            ProducerStates.decode(data)
        except MalformedBytes:
            continue
        assert len(ProducerStates.decode(data)) < len(states)

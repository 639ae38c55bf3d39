"""Idempotent producers: sequences, epochs, duplicates, expiry."""

import dataclasses
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quipu.model.errors import Code, ErrorKind, MalformedBytes, RequestError
from quipu.model.settings import BrokerSettings
from quipu.storage.derived import producers
from quipu.storage.derived.producers import BATCHES_KEPT, SEQUENCE_COUNT, ProducerStates
from quipu.wire.record_batch import BatchHeader
from tests.storage.builders import NOW_MS, SMALL, append, data_disk, open_log, read_all

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
    # Shows storage.P1.
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


def test_a_duplicate_gets_its_first_offsets_and_is_not_written() -> None:
    """K2: through restarts with and without a clean stop, and after its records are gone."""
    # Shows storage.P2.
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


def test_no_stranger_takes_the_place_of_a_producer_that_may_retry() -> None:
    """K2: a new one is admitted in the place of those that are silent for too long, or not."""
    # Shows storage.P4.
    states = ProducerStates()
    for number in range(10):
        states.note(header(number, 0, 0), number, NOW_MS + number)

    def admit(producer: int, now_ms: int) -> None:
        states.admit(header(producer, 0, 0), "t-0", limit=10, retry_ms=1000, now_ms=now_ms)

    assert states.is_full(10)
    assert not states.is_full(11)
    admit(3, NOW_MS)  # it is known
    for now_ms in (NOW_MS, NOW_MS + 999):
        with pytest.raises(RequestError, match=r"max\.producer\.ids\.per\.partition") as refused:
            admit(77, now_ms)
        assert refused.value.code is Code.THROTTLING_QUOTA_EXCEEDED
        assert refused.value.kind is ErrorKind.RETRY
        assert len(states) == 10
    admit(77, NOW_MS + 1001)
    assert [info.producer_id for info in states.infos()] == list(range(2, 10))


def test_a_crowd_of_refused_producers_costs_no_search() -> None:
    """K8: it is known when the next producer can be forgotten; before that none is looked for."""
    states = ProducerStates()
    for number in range(1000):
        states.note(header(number, 0, 0), number, NOW_MS)

    class Counted(dict[int, object]):
        searches = 0

        def items(self) -> object:  # type: ignore[override]
            Counted.searches += 1
            return super().items()

    states._producers = Counted(states._producers)  # type: ignore[assignment]
    for number in range(500):
        with pytest.raises(RequestError):
            states.admit(header(5000 + number, 0, 0), "t-0", limit=1000, retry_ms=1000,
                         now_ms=NOW_MS + number)
    assert Counted.searches == 1


def test_a_log_refuses_a_new_producer_before_it_writes() -> None:
    """K2: nothing of the batch is stored, and the others go on."""
    disk = data_disk()
    config = dataclasses.replace(SMALL, producers_max=3, producer_retry_ms=1000)
    log = open_log(disk, config)
    for number in range(3):
        append(log, [b"x"], producer=(number, 0, 0))
    with pytest.raises(RequestError) as refused:
        append(log, [b"x"], producer=(9, 0, 0))
    assert refused.value.code is Code.THROTTLING_QUOTA_EXCEEDED
    assert log.end_offset == 3
    assert append(log, [b"x"], producer=(0, 0, 0)).duplicate
    assert append(log, [b"x"], producer=(1, 0, 1)).base_offset == 3
    assert append(log, [b"x"]).base_offset == 4  # one that is not idempotent is not counted
    late = append(log, [b"x"], producer=(9, 0, 0), now_ms=NOW_MS + 1000)
    assert late.base_offset == 5


@pytest.mark.parametrize(("seen", "sent", "skips"), [
    ([], (0, 0, 1), False), ([], (0, 1, 1), True),
    ([(0, 0, 3)], (0, 3, 1), False), ([(0, 0, 3)], (0, 4, 1), True),
    ([(0, 0, 3)], (0, 0, 3), False), ([(0, 0, 3)], (0, 1, 1), False),
    ([(3, 0, 1)], (4, 0, 1), False), ([(3, 0, 1)], (4, 1, 1), True),
    ([(3, 0, 1)], (2, 9, 1), False),
    ([(0, LAST, 1)], (0, 0, 1), False), ([(0, LAST, 1)], (0, 1, 1), True),
    ([(0, LAST - 1, 1)], (0, 0, 1), True),
])
def test_a_batch_that_skips_sequences_is_known(
    seen: list[tuple[int, int, int]], sent: tuple[int, int, int], skips: bool
) -> None:
    """K2: one that leaves a gap, or begins anew elsewhere than at 0; a copy does not."""
    states = ProducerStates()
    for number, each in enumerate(seen):
        states.note(header(1, *each), number, NOW_MS)
    assert states.skips(header(1, *sent)) is skips


def test_the_highest_limit_is_what_memory_is_bounded_by() -> None:
    """K8: a log that takes over another's producers never has to forget one of them."""
    field = BrokerSettings.__dataclass_fields__["max_producer_ids_per_partition"]
    assert str(producers.PRODUCERS_MAX) in field.metadata["setting"].kind.allowed


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(1, 4))))
def test_state_survives_its_bytes(batches: list[tuple[int, int, int]]) -> None:
    """K2, T7: what a checkpoint holds is the whole state."""
    # Shows storage.P3.
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

"""Batches of a producer that lie further back than its state remembers."""

import pytest

from quipu.model.errors import Code, RequestError
from quipu.model.ids import Offset
from quipu.runtime.disks.sim_disk import SimDisk
from quipu.storage import repeats
from quipu.storage.derived.producers import BATCHES_KEPT
from quipu.storage.log import Log, LogConfig
from quipu.storage.repeats import find_repeat
from quipu.wire.record_batch import BatchHeader, encode_batch, parse_header
from tests.storage.builders import NOW_MS, append, data_disk, open_log, records

PRODUCER = 7
STRANGERS = 3_000  # batches


def header_of(first: int, count: int = 1, *, epoch: int = 0) -> BatchHeader:
    return parse_header(memoryview(encode_batch(
        records([b"x"] * count), producer_id=PRODUCER, producer_epoch=epoch, base_sequence=first)))


def a_log(disk: SimDisk, value: bytes = b"x") -> Log:
    """A batch of the producer, many of strangers that hold `value`, and its last ones."""
    log = open_log(disk, LogConfig(segment_bytes=1 << 20))
    append(log, [b"a", b"b"], producer=(PRODUCER, 0, 0))
    for _ in range(STRANGERS):
        append(log, [value])
    for number in range(BATCHES_KEPT):
        append(log, [b"c"], producer=(PRODUCER, 0, 2 + number))
    return log


@pytest.mark.parametrize(("first", "count", "epoch", "found"), [
    (0, 2, 0, 0),       # it is there
    (0, 1, 0, None),    # another one that begins with the same sequence
    (1, 1, 0, None),    # one that begins within it
    (0, 2, 1, None),    # of another epoch
    (2, 1, 0, None),    # remembered: the state finds it
    (9, 1, 0, None),    # still to come
])
def test_a_batch_is_found_by_what_it_is(
    first: int, count: int, epoch: int, found: int | None
) -> None:
    """K2: by producer, epoch and all of its sequences."""
    log = a_log(data_disk())
    assert find_repeat(log, header_of(first, count, epoch=epoch)) == found


def test_records_that_look_like_a_header_are_not_mistaken_for_one() -> None:
    """K8: whatever strangers write, batches begin where the one before them ends."""
    log = a_log(data_disk(), value=repeats._PRODUCER.pack(PRODUCER, 0, 1))
    assert find_repeat(log, header_of(1)) is None
    assert find_repeat(log, header_of(0, 2)) == Offset(0)


def test_strangers_batches_are_passed_over_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """K8: one small request must not have thousands of headers read one by one."""
    log = a_log(data_disk())

    class Unread:
        """Reading a header is an error."""

        @staticmethod
        def unpack_from(*_: object) -> None:
            raise AssertionError("a header was read")

    monkeypatch.setattr(repeats, "_WALK", Unread)
    assert find_repeat(log, header_of(1)) is None


def test_a_batch_that_has_left_the_disk_for_the_tier_is_a_duplicate() -> None:
    """K2, R13: it cannot be found, but it is there: the producer must not fail because of it."""
    log = open_log(data_disk(), LogConfig(
        segment_bytes=2000, is_tiered=True, local_retention_bytes=0, retention_ms=-1))
    for number in range(2 * BATCHES_KEPT):
        append(log, [bytes(500)], producer=(PRODUCER, 0, number))
    log.note_tiered(Offset(5), NOW_MS, stable_end=log.end_offset)
    log.flusher.flush_now()
    assert log.apply_retention(
        NOW_MS, high_watermark=log.end_offset, committed_log=log.log_end, may_roll=False) > 0
    assert log.local_start_offset > 1

    with pytest.raises(RequestError) as refused:
        find_repeat(log, header_of(0))
    assert refused.value.code == Code.DUPLICATE_SEQUENCE_NUMBER
    assert find_repeat(log, header_of(0, epoch=1)) is None  # a new epoch begins with 0

"""After a failed batch, an idempotent producer begins again with it, and not with a later one."""

import pytest

from quipu.diskless.writing import producer_guard
from quipu.diskless.writing.producer_guard import IN_FLIGHT_SECONDS_MAX, ProducerGuard
from quipu.runtime.clock import ManualClock
from quipu.wire.record_batch import BatchHeader, parse_header
from tests.diskless.nodes import LOG, encoded


def header(sequence: int, *, epoch: int = 0, producer: int = 5) -> BatchHeader:
    return parse_header(encoded("a", producer=(producer, epoch, sequence)))


def test_later_batches_wait_for_the_failed_one() -> None:
    """D3, diskless.W4: those before it, which may be copies, and other producers, do not."""
    guard = ProducerGuard(ManualClock().monotonic)
    guard.failed(LOG, header(7))
    assert guard.is_on
    assert guard.forbids(LOG, header(8))
    assert guard.forbids(LOG, header(9))
    assert not guard.forbids(LOG, header(6))
    assert not guard.forbids(LOG, header(8, producer=6))
    assert not guard.forbids(LOG._replace(partition=1), header(8))
    assert not guard.forbids(LOG, header(7))
    assert not guard.forbids(LOG, header(8))
    assert not ProducerGuard(ManualClock().monotonic).is_on


def test_the_first_of_several_failed_batches_is_awaited() -> None:
    """D3, diskless.W4: in whichever order they fail."""
    guard = ProducerGuard(ManualClock().monotonic)
    for sequence in (7, 5, 9):
        guard.failed(LOG, header(sequence))
    assert guard.forbids(LOG, header(7))
    assert not guard.forbids(LOG, header(5))


def test_sequences_wrap_around() -> None:
    """D3, diskless.W4: 0 comes after 2^31 - 1."""
    guard = ProducerGuard(ManualClock().monotonic)
    guard.failed(LOG, header((1 << 31) - 1))
    assert guard.forbids(LOG, header(0))
    assert not guard.forbids(LOG, header((1 << 31) - 2))
    assert not guard.forbids(LOG, header((1 << 31) - 1))


def test_a_new_epoch_begins_anew() -> None:
    """D3: its sequences say nothing of the old ones; those of an older epoch are not awaited."""
    guard = ProducerGuard(ManualClock().monotonic)
    guard.failed(LOG, header(7, epoch=3))
    assert not guard.forbids(LOG, header(8, epoch=2))
    assert not guard.forbids(LOG, header(3, epoch=4))
    assert not guard.is_on


def test_nothing_is_awaited_for_ever() -> None:
    """D3: after a minute the batches that were on their way have come, or never will."""
    clock = ManualClock()
    guard = ProducerGuard(clock.monotonic)
    guard.failed(LOG, header(7))
    clock.advance_ms(int(IN_FLIGHT_SECONDS_MAX * 1000))
    assert not guard.forbids(LOG, header(8))
    guard.failed(LOG, parse_header(encoded("a")))
    assert not guard.is_on


def test_too_many_failures_make_all_producers_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """D3, diskless.W4: the memory is bounded, and what is not remembered is refused."""
    monkeypatch.setattr(producer_guard, "AWAITED_MAX", 2)
    clock = ManualClock()
    guard = ProducerGuard(clock.monotonic)
    for producer in range(3):
        guard.failed(LOG, header(7, producer=producer))
    assert guard.forbids(LOG, header(8, producer=2))
    assert not guard.forbids(LOG, header(7, producer=0))
    clock.advance_ms(int(IN_FLIGHT_SECONDS_MAX * 1000))
    assert not guard.forbids(LOG, header(8, producer=2))
    guard.failed(LOG, header(7, producer=4))
    assert guard.forbids(LOG, header(8, producer=4))

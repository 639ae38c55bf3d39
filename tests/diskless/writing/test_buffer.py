"""The buffer of a writer: every batch in one object, in order, and not too late."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from quipu.diskless.control_plane.interface import COMMIT_BATCHES_MAX, BatchOutcome
from quipu.diskless.values import LogKey
from quipu.diskless.writing.buffer import WriteBuffer
from quipu.diskless.writing.limits import EARLY_BYTES, QUIET_SECONDS_MIN, WriterLimits
from quipu.model.errors import QuipuError
from quipu.wire.record_batch import parse_header
from tests.diskless.nodes import LOG, encoded

LIMITS = WriterLimits(flush_interval_ms=250, flush_bytes=1 << 20, uploads_max=4)


def ignore(_: BatchOutcome | QuipuError) -> None:
    pass


def add(buffer: WriteBuffer, batch: memoryview, log: LogKey = LOG, *, now: float = 0.0) -> bool:
    return buffer.add(log, batch, parse_header(batch), ignore, now=now)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 600)), max_size=60),
       st.integers(200, 2000))
def test_every_batch_is_in_one_flush_in_order(
    steps: list[tuple[int, int, int]], flush_bytes: int
) -> None:
    """D1, diskless.W1, diskless.W2: whatever the logs, the sizes and the producers removed."""
    buffer = WriteBuffer(LIMITS._replace(flush_bytes=flush_bytes))
    expected: dict[LogKey, list[str]] = {}
    found: dict[LogKey, list[str]] = {}

    def take() -> None:
        flush = buffer.take()
        logs = [each.log for each in flush.logs]
        assert logs == sorted(logs)
        sizes = [batch.header.size for batch in flush.batches()]
        assert (flush.size, flush.count) == (sum(sizes), len(sizes))
        assert not sizes or flush.size - max(sizes) < flush_bytes
        for each in flush.logs:
            assert each.batches
            assert len(each.data) == sum(batch.header.size for batch in each.batches)
            for batch in each.batches:
                data = bytes(each.data[batch.position : batch.position + batch.header.size])
                found.setdefault(each.log, []).append(data.hex())

    for number, (partition, producer, size) in enumerate(steps):
        log = LogKey(UUID(int=3 - partition), partition)
        batch = encoded("x" * size, producer=(producer, 0, number))
        expected.setdefault(log, []).append(bytes(batch).hex())
        if add(buffer, batch, log):
            take()
        if size % 7 == 0:
            for gone in buffer.remove({(log, producer, 0)}):
                assert gone.producer == (log, producer, 0)
                lost = bytes(encoded("x" * (len_of(gone.header.size)),
                                     producer=(producer, 0, gone.header.base_sequence))).hex()
                expected[log].remove(lost)
    take()
    take()
    assert {log: each for log, each in expected.items() if each} == found


def len_of(batch_size: int) -> int:
    """The length of the one value in a batch of that size."""
    return next(size for size in range(700) if len(encoded("x" * size)) == batch_size)


def test_the_interval_begins_with_the_first_batch() -> None:
    """D1: not with the last flush; later batches do not postpone it."""
    buffer = WriteBuffer(LIMITS)
    assert buffer.flush_in(5.0, 0) is None
    add(buffer, encoded("a"), now=5.0)
    add(buffer, encoded("b"), now=5.2)
    assert abs((buffer.flush_in(5.2, 0) or 0) - 0.05) < 1e-9
    assert buffer.flush_in(5.25, 0) == 0.0
    buffer.take()
    assert buffer.flush_in(6.0, 0) is None


def test_a_full_buffer_is_written_at_once() -> None:
    """D1, diskless.W2: by bytes, and by the number of batches that one commit takes."""
    buffer = WriteBuffer(LIMITS)
    assert add(buffer, encoded("x" * LIMITS.flush_bytes))
    buffer.take()
    small = encoded("x")
    assert [add(buffer, small) for _ in range(COMMIT_BATCHES_MAX)].index(True) == (
        LIMITS.flush_batches - 1)
    buffer = WriteBuffer(LIMITS._replace(flush_batches=1 << 20))
    assert [add(buffer, small) for _ in range(COMMIT_BATCHES_MAX)].index(True) == (
        COMMIT_BATCHES_MAX - 1)


def test_producers_that_wait_for_answers_do_not_wait_for_the_interval() -> None:
    """D6: batches came in quick succession, and then none."""
    buffer = WriteBuffer(LIMITS)
    large = encoded("x" * EARLY_BYTES)
    add(buffer, large, now=1.0)
    add(buffer, large, now=1.0001)
    assert 0 < (buffer.flush_in(1.0001, 0) or 0) < 2 * QUIET_SECONDS_MIN
    assert buffer.flush_in(1.0 + 2 * QUIET_SECONDS_MIN, 0) == 0.0


def test_a_steady_stream_is_collected_for_the_whole_interval() -> None:
    """D6: a producer that does not wait causes no more objects than the interval says."""
    buffer = WriteBuffer(LIMITS)
    large = encoded("x" * (EARLY_BYTES // 4))
    for number in range(12):
        now = 1.0 + number * 0.02
        add(buffer, large, now=now)
        assert (buffer.flush_in(now + 0.019, 0) or 0) > 0


def test_little_is_not_written_early() -> None:
    """D6: one small batch waits for others; the more uploads run, the more is little."""
    buffer = WriteBuffer(LIMITS)
    add(buffer, encoded("x"), now=1.0)
    assert (buffer.flush_in(1.1, 0) or 0) > 0.1
    add(buffer, encoded("x" * EARLY_BYTES), now=1.1)
    assert (buffer.flush_in(1.11, 1) or 0) > 0.1
    assert buffer.look_size == 2 * EARLY_BYTES
    assert buffer.flush_in(2.0, LIMITS.uploads_max) is None

"""Reading at the tail: what one consumer was given serves the next, and never too long."""

from quipu.model.ids import LogOffset, Offset
from quipu.storage.config import LogConfig
from quipu.storage.log import Log
from quipu.storage.segments.segment import TAIL_READ_SIZE, TAILS_SIZE_MAX
from quipu.wire.record_batch import decode_records
from tests.storage.builders import append, data_disk, open_log, split


def tail(log: Log, offset: int, max_bytes: int = 1 << 20) -> list[memoryview]:
    return log.read(Offset(offset), max_bytes, end=log.end_offset, min_one=True)


def values(buffers: list[memoryview]) -> list[bytes | None]:
    return [record.value for batch in split(buffers)
            for record in decode_records(batch, size_max=1 << 20)]


def test_consumers_at_the_tail_share_one_read() -> None:
    """K2: the same read has the same result; another limit or a longer log is another read."""
    log = open_log(data_disk(), LogConfig())
    append(log, [b"a" * 5000])
    append(log, [b"b" * 5000])
    append(log, [b"c" * 5000])
    first = tail(log, 1)
    assert tail(log, 1) is first
    assert values(first) == [b"b" * 5000, b"c" * 5000]
    assert values(tail(log, 1, 5500)) == [b"b" * 5000]
    assert values(tail(log, 2)) == [b"c" * 5000]
    append(log, [b"d"])
    assert values(tail(log, 1)) == [b"b" * 5000, b"c" * 5000, b"d"]
    assert values(first) == [b"b" * 5000, b"c" * 5000]


def test_a_truncated_log_does_not_return_what_was_read_before() -> None:
    """V1: other records at the same offsets, up to the same end."""
    log = open_log(data_disk(), LogConfig())
    append(log, [b"a" * 5000])
    cut = log.log_end
    append(log, [b"lost"])
    assert values(tail(log, 1)) == [b"lost"]
    log.truncate(LogOffset(cut), 1)
    append(log, [b"kept"])
    assert values(tail(log, 1)) == [b"kept"]


def test_what_is_kept_of_tails_is_bounded() -> None:
    """V1: a node with many partitions keeps the tails that were read last."""
    disk = data_disk()
    log = open_log(disk, LogConfig())
    append(log, [b"a" * 5000])
    append(log, [b"b"])
    tail(log, 1)
    (segment,) = log.segments
    assert segment.kept_read is not None
    for number in range(TAILS_SIZE_MAX // TAIL_READ_SIZE):
        assert segment.kept_read is not None
        other = open_log(disk, LogConfig(), directory=f"data/u-{number}")
        segment._opened.keep_tail(other.segments[0], TAIL_READ_SIZE)
    assert segment.kept_read is None
    assert values(tail(log, 1)) == [b"b"]

"""Two replicas side by side."""

import struct
from pathlib import Path

import pytest

from quipu.runtime.disks.disk import RealDisk
from quipu.storage.inspect.diff import Comparison, compare
from quipu.storage.inspect.files import find_logs
from quipu.wire.record_batch import Record
from tests.storage.inspect.build import LogBuilder, flip, make_header_sound, three_segments

FIRST, SECOND = "00000000000000000000.log", "00000000000000000009.log"


def compare_paths(a: Path, b: Path) -> Comparison:
    disk = RealDisk()
    (log_a,), (log_b,) = find_logs(disk, str(a)), find_logs(disk, str(b))
    return compare(disk, log_a, log_b)


def two_replicas(tmp_path: Path) -> tuple[Path, Path]:
    return three_segments().write(tmp_path / "a"), three_segments().write(tmp_path / "b")


def test_equal_replicas_are_the_same(tmp_path: Path) -> None:
    """T10: every batch compared, none differs."""
    comparison = compare_paths(*two_replicas(tmp_path))

    assert comparison.difference is None
    assert comparison.batches == 12


def changed(path: Path, batch_position: int, position: int, value: bytes) -> None:
    """Change a header field, with a sound checksum over it."""
    data = bytearray(path.read_bytes())
    data[batch_position + position : batch_position + position + len(value)] = value
    make_header_sound(data, batch_position)
    path.write_bytes(data)


@pytest.mark.parametrize(("position", "value", "how"), [
    (4, b"\x63", ("batch_type: A data, B unknown(99)",)),
    (28, struct.pack(">i", 2), ("leader_epoch: A 1, B 2",)),
    (16, struct.pack(">q", 7), ("base_offset: A 6, B 7",)),
    (33, struct.pack(">I", 5), ("crc: A 0x78fe8e24, B 0x00000005",
                                "B has a bad body checksum, at position 168 of {b}")),
])
def test_the_first_difference_is_named(
    tmp_path: Path, position: int, value: bytes, how: tuple[str, ...]
) -> None:
    """T10: both offsets of the batch, and the field that differs with both values."""
    a, b = two_replicas(tmp_path)
    changed(b / SECOND, len(three_segments().segments[9][0]), position, value)

    comparison = compare_paths(a, b)

    assert comparison.difference is not None
    assert (comparison.difference.log_offset, comparison.difference.offset) == (12, 6)
    assert comparison.difference.how[0] == how[0]
    assert comparison.difference.how[1:] == tuple(line.format(b=b / SECOND) for line in how[1:])
    assert comparison.batches == 5


def test_other_records_at_one_offset_differ_by_checksum(tmp_path: Path) -> None:
    """T10: two leaders wrote at the same offset."""
    builders = LogBuilder(), LogBuilder(epoch=2)
    for builder, value in zip(builders, (b"one", b"two"), strict=True):
        builder.epoch = 1 if value == b"one" else 2
        builder.append([Record(None, value, (), 0)])
    a, b = builders[0].write(tmp_path / "a"), builders[1].write(tmp_path / "b")
    changed(b / FIRST, 0, 28, struct.pack(">i", 1))  # the checkpoint alike

    difference = compare_paths(a, b).difference

    assert difference is not None
    assert (difference.log_offset, difference.offset) == (3, 0)
    assert [line.split(":")[0] for line in difference.how] == ["leader_epoch", "crc"]


def test_a_shorter_replica_is_missing_the_rest(tmp_path: Path) -> None:
    """T10: where it ends, and how much more the other has."""
    a, b = two_replicas(tmp_path)
    (b / "00000000000000000018.log").unlink()

    for pair, label in (((a, b), "B"), ((b, a), "A")):
        difference = compare_paths(*pair).difference
        assert difference is not None
        assert (difference.log_offset, difference.offset) == (18, 12)
        assert difference.how[0].startswith(f"missing in {label}")
        assert "4 batches, to log offset 27 and offset 18" in difference.how[0]


def test_a_damaged_replica_is_named_with_the_place(tmp_path: Path) -> None:
    """T10: a damaged header and a damaged body, in either replica."""
    a, b = two_replicas(tmp_path)
    start = len(three_segments().segments[9][0])
    flip(b / SECOND, start + 8)

    difference = compare_paths(a, b).difference
    assert difference is not None
    assert (difference.log_offset, difference.offset) == (12, 6)
    assert difference.how == (
        f"B is damaged: bad header checksum at position {start} of {b / SECOND}",)

    flip(b / SECOND, start + 8)
    flip(b / SECOND, start + 80)
    difference = compare_paths(b, a).difference
    assert difference is not None
    assert difference.how == (f"A has a bad body checksum, at position {start} of {b / SECOND}",)


def test_a_torn_tail_is_a_difference(tmp_path: Path) -> None:
    """T10, T12: at every byte of the last batch."""
    a, b = two_replicas(tmp_path)
    last = b / "00000000000000000018.log"
    whole, size = last.read_bytes(), len(three_segments().segments[18][-1])
    for cut in range(1, size):
        last.write_bytes(whole[:-cut])
        difference = compare_paths(a, b).difference
        assert difference is not None
        assert (difference.log_offset, difference.offset) == (25, 16)


def test_a_replica_whose_retention_went_further_is_the_same(tmp_path: Path) -> None:
    """T10: compared from where the later of the two begins, and said so."""
    a, b = two_replicas(tmp_path)
    (b / FIRST).unlink()

    for pair in ((a, b), (b, a)):
        comparison = compare_paths(*pair)
        assert comparison.difference is None
        assert comparison.batches == 8
        assert "compared from" in comparison.notes[0]

"""Open files, more of them than there are descriptors."""

import errno
import os
import threading
from pathlib import Path

import pytest

from quipu.model.errors import QuipuError
from quipu.runtime.disks.descriptors import LIMIT_MAX, LIMIT_MIN, RESERVE, shares
from quipu.runtime.disks.disk import (
    DiskBusy,
    DiskError,
    DiskFull,
    File,
    RealDisk,
    TransientDiskError,
)
from quipu.runtime.disks.errors import mapped
from quipu.runtime.disks.files import LOOKS_MAX
from quipu.runtime.disks.mapping import COMPILED


def open_count() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def disk_of(count_max: int) -> RealDisk:
    disk = RealDisk()
    disk.files.count_max = count_max
    return disk


def test_many_files_take_turns_with_few_descriptors(tmp_path: Path) -> None:
    """K8: what is appended to any of them is there, in order, whatever was set aside meanwhile."""
    disk = disk_of(5)
    before = open_count()
    files = [disk.open(str(tmp_path / str(number)), create=True) for number in range(40)]
    for turn in range(6):
        for number, file in enumerate(files):
            file.append((b"%d:" % turn, b"%d\n" % number), len(b"%d:%d\n" % (turn, number)))
            if number % 7 == turn:
                file.sync()
            assert open_count() - before <= 6
    for number, file in enumerate(files):
        expected = b"".join(b"%d:%d\n" % (turn, number) for turn in range(6))
        assert file.read(1000, 0) == bytes(file.map()) == expected
        file.sync()
        file.close()
        with pytest.raises(DiskError, match="closed"):
            file.append((b"x",), 1)
    assert open_count() == before
    assert len(disk.files) == 0


def test_one_of_many_files_in_use_gives_up_its_descriptor(tmp_path: Path) -> None:
    """K8: however many there are, few are looked at, and there is never one too many."""
    disk = disk_of(3 * LOOKS_MAX)
    files = [disk.open(str(tmp_path / str(number)), create=True)
             for number in range(3 * LOOKS_MAX + 50)]
    assert len(disk.files) == 3 * LOOKS_MAX
    for file in files[-3 * LOOKS_MAX:]:
        file.append((b"x",), 1)  # all are in use, and none is synced
    for number, file in enumerate(files[:20]):
        for other in files[-3 * LOOKS_MAX:]:
            other.was_used = True
        file.append((b"%d" % number,), len(b"%d" % number))
        assert len(disk.files) == 3 * LOOKS_MAX
    for file in files:
        file.close()


def test_a_file_gives_up_its_descriptor_only_when_it_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T12: runtime.F4; the next sync of the file must report a write that fails later."""
    disk = disk_of(2)
    first = disk.open(str(tmp_path / "first"), create=True)
    first.append((b"one",), 3)

    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "fdatasync", fail)
    others = []
    for number in range(3):
        others.append(disk.open(str(tmp_path / str(number)), create=True))
        others[-1].append((b"x",), 1)
    monkeypatch.undo()
    with pytest.raises(DiskError, match="Input/output error"):
        first.sync()
    assert first.read(3, 0) == b"one"


def test_another_thread_takes_no_file_its_descriptor(tmp_path: Path) -> None:
    """runtime.F5: the loop's thread, which uses it, may be in the middle of a write."""
    disk = disk_of(2)
    files = [disk.open(str(tmp_path / str(number)), create=True) for number in range(2)]
    for file in files:
        file.sync()
    others: list[File] = []
    thread = threading.Thread(
        target=lambda: others.append(disk.open(str(tmp_path / "other"), create=True)))
    thread.start()
    thread.join()
    assert len(disk.files) == 3, "one too many, until the loop's thread opens the next"
    others.append(disk.open(str(tmp_path / "next"), create=True))
    assert len(disk.files) == 3
    for file in [*files, *others]:
        file.close()


def test_the_file_that_was_used_longest_ago_is_set_aside(tmp_path: Path) -> None:
    """K8: a busy log keeps its descriptor."""
    disk = disk_of(4)
    busy = disk.open(str(tmp_path / "busy"), create=True)
    busy.append((b"x",), 1)
    for number in range(50):
        busy.append((b"x",), 1)
        busy.sync()
        idle = disk.open(str(tmp_path / str(number)), create=True)
        idle.sync()
    assert busy in disk.files._files


def test_a_file_that_was_exchanged_while_it_was_aside_is_not_written_to(tmp_path: Path) -> None:
    """T12: nothing is appended to bytes that another process wrote."""
    disk = disk_of(1)
    file = disk.open(str(tmp_path / "a"), create=True)
    file.append((b"abc",), 3)
    file.sync()
    disk.open(str(tmp_path / "b"), create=True)
    disk.open(str(tmp_path / "c"), create=True)
    (tmp_path / "a").write_bytes(b"other things")
    with pytest.raises(DiskError, match="another process changed it"):
        file.append((b"d",), 1)


def test_maps_hold_no_descriptors(tmp_path: Path) -> None:
    """K8: however many segments are read, and however slowly what was read is sent.

    Those of the standard library, which serve where nothing is compiled, do.
    """
    disk = RealDisk()
    (tmp_path / "file").write_bytes(b"mapped" * 1000)
    before = open_count()
    views = [disk.map(str(tmp_path / "file")) for _ in range(300)]
    assert open_count() == before + (0 if COMPILED else 300)
    (tmp_path / "file").unlink()
    part = views[7][6:12]
    del views
    assert bytes(part) == b"mapped"
    assert part.readonly


@pytest.mark.parametrize(("number", "kind"), [
    (errno.ENOSPC, DiskFull), (errno.EDQUOT, DiskFull), (errno.EFBIG, DiskFull),
    (errno.EMFILE, DiskBusy), (errno.ENFILE, DiskBusy), (errno.EINTR, DiskBusy),
    (errno.EAGAIN, DiskBusy), (errno.ENOMEM, DiskBusy), (errno.EIO, DiskError),
    (errno.EROFS, DiskError), (errno.EACCES, DiskError)])
def test_errors_are_of_a_kind(number: int, kind: type[DiskError]) -> None:
    """K8: what passes is tried again, what does not is final."""
    found = mapped(OSError(number, "why"), "path")
    assert type(found) is kind
    assert isinstance(found, TransientDiskError) == (kind is not DiskError)


@pytest.mark.parametrize("limit", [LIMIT_MIN, 1024, 4096, 65_536, LIMIT_MAX, -1])
@pytest.mark.parametrize("wanted", [1, 100, 10_000, 10**6])
def test_connections_never_take_what_logs_need(limit: int, wanted: int) -> None:
    """K8: and a reserve is left for everything else."""
    connections, files = shares(limit, connections_max=wanted)
    total = limit if limit > 0 else LIMIT_MAX
    assert connections + files + RESERVE == total
    assert 1 <= connections <= wanted
    assert files >= (total - RESERVE) // 2


def test_too_few_descriptors_are_refused_at_the_start() -> None:
    """K8: with what to do about it."""
    with pytest.raises(QuipuError, match="ulimit -n"):
        shares(LIMIT_MIN - 1, connections_max=10)

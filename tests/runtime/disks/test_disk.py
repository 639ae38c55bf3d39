"""One contract for the disk and its twin; then what only one of them can show."""

import asyncio
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from quipu.model.errors import ErrorKind, QuipuError
from quipu.runtime.disks.disk import Disk, DiskError, DiskFull, NotFound, RealDisk
from quipu.runtime.disks.sim_disk import SimDisk
from quipu.runtime.rng import SeededRng
from tests.looped import looped


@pytest.fixture(params=["real", "sim"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    if request.param == "real":
        return RealDisk()
    sim = SimDisk()
    sim.make_directory(str(tmp_path))
    return sim


def test_a_file_grows_and_reads_back(disk: Disk, tmp_path: Path) -> None:
    """V1: appended bytes are there at once, at their position."""
    path = f"{tmp_path}/a"
    file = disk.open(path, create=True)
    file.append((b"one", memoryview(b"two")), 6)
    file.append((bytearray(b"three"),), 5)
    assert (file.size, disk.size(path)) == (11, 11)
    assert file.read(100, 3) == b"twothree"
    assert file.read(3, 3) == b"two"
    assert disk.read(path, 4, 1) == b"netw"
    file.sync()
    file.close()
    again = disk.open(path)
    again.append((b"!",), 1)
    assert disk.read(path) == b"onetwothree!"


def test_a_map_is_what_the_file_was(disk: Disk, tmp_path: Path) -> None:
    """V1: later appends need a new map; the old one stays valid, also when the file goes."""
    path = f"{tmp_path}/a"
    file = disk.open(path, create=True)
    assert bytes(file.map()) == b""
    file.append((b"abc",), 3)
    view = file.map()
    file.append((b"def",), 3)
    assert bytes(view) == b"abc"
    assert bytes(file.map()) == bytes(disk.map(path)) == b"abcdef"
    assert file.mapped_size == 6
    disk.remove(path)
    file.close()
    assert bytes(view[1:]) == b"bc"


def test_a_file_is_not_cut_below_what_was_mapped(disk: Disk, tmp_path: Path) -> None:
    """V1: runtime.F2; touching such a page would end the process."""
    file = disk.open(f"{tmp_path}/a", create=True)
    file.append((b"abcdef",), 6)
    file.truncate(4)
    assert (file.size, file.read(9, 0)) == (4, b"abcd")
    file.map()
    with pytest.raises(AssertionError):
        file.truncate(3)


def test_ranges_are_copied_to_new_files(disk: Disk, tmp_path: Path) -> None:
    """T12: how torn bytes are kept, and how a mapped file is cut."""
    disk.write(f"{tmp_path}/a", b"0123456789")
    disk.copy(f"{tmp_path}/a", f"{tmp_path}/b", start=3, end=7)
    assert disk.read(f"{tmp_path}/b") == b"3456"
    disk.write(f"{tmp_path}/a", b"xy")
    assert disk.read(f"{tmp_path}/a") == b"xy"


def test_names_come_and_go(disk: Disk, tmp_path: Path) -> None:
    """V1: directories, renames, removals."""
    root = str(tmp_path)
    disk.make_directory(f"{root}/d/e")
    disk.make_directory(f"{root}/d/e")
    disk.write(f"{root}/d/e/f", b"x")
    disk.write(f"{root}/d/g", b"y")
    assert list(disk.list(f"{root}/d")) == ["e", "g"]
    disk.rename(f"{root}/d/e", f"{root}/d/h")
    assert disk.read(f"{root}/d/h/f") == b"x"
    disk.rename(f"{root}/d/g", f"{root}/d/h/f")
    assert disk.read(f"{root}/d/h/f") == b"y"
    disk.sync_directory(f"{root}/d")
    assert disk.exists(f"{root}/d/h/f")
    disk.remove_tree(f"{root}/d")
    assert not disk.exists(f"{root}/d/h")
    assert list(disk.list(root)) == []


def test_what_is_not_there_is_not_found(disk: Disk, tmp_path: Path) -> None:
    """V1: one error for it, whatever was asked."""
    path = f"{tmp_path}/none"
    for ask in (disk.open, disk.map, disk.read, disk.size, disk.list, disk.remove):
        with pytest.raises(NotFound):
            ask(path)
    with pytest.raises(NotFound):
        disk.rename(path, path + "2")


def test_a_lock_is_held_by_one(disk: Disk, tmp_path: Path) -> None:
    """V13: until it is released."""
    path = f"{tmp_path}/.lock"
    lock = disk.lock(path)
    assert lock is not None
    assert disk.lock(path) is None
    lock.release()
    lock.release()
    assert disk.lock(path) is not None


def test_the_volume_has_a_size(disk: Disk, tmp_path: Path) -> None:
    """K1: for DescribeLogDirs."""
    total, usable = disk.space(str(tmp_path))
    assert 0 < usable <= total


def test_work_is_done_at_once_without_a_loop(disk: Disk) -> None:
    """V17: and its error is passed to the caller."""
    told: list[QuipuError | None] = []

    def fail() -> None:
        raise DiskError("no")

    disk.submit(lambda: None, told.append)
    disk.submit(fail, told.append)()
    assert told[0] is None
    assert isinstance(told[1], DiskError)


# --- the real one -------------------------------------------------------------------------------


@looped
async def test_work_runs_in_a_thread_and_ends_on_the_loop() -> None:
    """V17: runtime.F3; the loop goes on meanwhile; a bug in the work is reported, not lost."""
    disk = RealDisk()
    loop_thread = threading.get_ident()
    ended: asyncio.Future[tuple[int, QuipuError | None]] = (
        asyncio.get_running_loop().create_future())
    worked: list[int] = []

    def work() -> None:
        worked.append(threading.get_ident())
        raise ZeroDivisionError

    wait = disk.submit(work, lambda error: ended.set_result((threading.get_ident(), error)))
    wait()
    assert not ended.done()
    thread, error = await ended
    assert worked != [loop_thread]
    assert thread == loop_thread
    assert error is not None
    assert error.kind is ErrorKind.BUG
    disk.close()


def test_a_write_that_stops_half_way_leaves_no_trace(tmp_path: Path) -> None:
    """V12: runtime.F1; the system wrote a part and then refused: that part is cut off again."""
    file = RealDisk().open(f"{tmp_path}/a", create=True)
    file.append((b"x" * 600,), 600)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(DiskFull):
            file.append((b"y" * 300, b"z" * 300), 600)
        assert (file.size, (tmp_path / "a").stat().st_size) == (600, 600)
        file.append((b"y" * 300,), 300)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert RealDisk().read(f"{tmp_path}/a") == b"x" * 600 + b"y" * 300


def test_short_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """V12: a write that a signal cut short goes on where it stopped."""
    file = RealDisk().open(f"{tmp_path}/a", create=True)
    real = os.writev
    monkeypatch.setattr(os, "writev", lambda fd, buffers: real(fd, [b"".join(buffers)[:4]]))
    file.append((b"abc", b"defgh"), 8)
    assert RealDisk().read(f"{tmp_path}/a") == b"abcdefgh"


def test_a_file_that_cannot_be_cut_back_takes_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V12: runtime.F1; rather than an append after garbage."""
    file = RealDisk().open(f"{tmp_path}/a", create=True)

    def fail(*_: object) -> int:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "writev", fail)
        patched.setattr(os, "ftruncate", fail)
        with pytest.raises(DiskError) as caught:
            file.append((b"x",), 1)
        assert caught.value.kind is ErrorKind.CORRUPT
    with pytest.raises(DiskError):
        file.append((b"x",), 1)


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    """V13: a killed node leaves none behind."""
    path = f"{tmp_path}/.lock"
    code = ("import sys; from quipu.runtime.disks.disk import RealDisk; "
            "lock = RealDisk().lock(sys.argv[1]); print(lock is not None, flush=True); "
            "sys.stdin.read()")
    with subprocess.Popen([sys.executable, "-c", code, path], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"True\n"
        assert RealDisk().lock(path) is None
        process.kill()
    assert RealDisk().lock(path) is not None


# --- the twin -----------------------------------------------------------------------------------


def crashed(seed: int) -> tuple[bytes | None, list[str]]:
    """What is left of a file of which a part was synced, and of three names of which one was."""
    disk = SimDisk()
    disk.make_directory("d")
    file = disk.open("d/a", create=True)
    disk.sync_directory("d")
    file.append((b"A" * 1000,), 1000)
    file.sync()
    file.append((b"B" * 1000,), 1000)
    disk.open("d/b", create=True)
    disk.rename("d/b", "d/c")
    disk.crash(SeededRng(seed))
    return disk.read("d/a"), list(disk.list("d"))


def test_a_crash_keeps_what_was_synced_and_some_of_the_rest() -> None:
    """T12: data and names, each in every way that the system allows."""
    seen = [crashed(seed) for seed in range(200)]
    for data, names in seen:
        assert data is not None
        assert data.startswith(b"A" * 1000)
        assert set(data[1000:]) <= {0, ord("B")}
        assert names in (["a"], ["a", "b"], ["a", "c"])
    assert len({names[-1] for _, names in seen}) == 3
    assert any(data and b"\0" in data for data, _ in seen)
    assert len({len(data or b"") for data, _ in seen}) > 50


def test_a_crash_repeats_itself() -> None:
    """T12: one seed, one history."""
    assert [crashed(seed) for seed in range(20)] == [crashed(seed) for seed in range(20)]


def test_the_twin_runs_full_fails_to_sync_and_flips_bits() -> None:
    """V12, V17: the faults that tests of this room ask for."""
    disk = SimDisk()
    disk.make_directory("d")
    file = disk.open("d/a", create=True)
    disk.capacity = 4
    with pytest.raises(DiskFull):
        file.append((b"12345",), 5)
    file.append((b"1234",), 4)
    disk.sync_error = DiskError("no")
    with pytest.raises(DiskError):
        file.sync()
    disk.flip("d/a", 1)
    assert disk.read("d/a") == b"1334"
    assert disk.lock("d/l") is not None
    disk.crash(SeededRng(1))
    assert disk.lock("d/l") is not None

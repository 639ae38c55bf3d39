"""Room that is kept for what a node must write on a full disk."""

import pytest

from quipu.model.errors import Code, ErrorKind, RequestError
from quipu.runtime.disks.disk import DiskFull
from quipu.runtime.disks.sim_disk import SimDisk
from quipu.storage.directory.reserve import (
    BLOCK_SIZE,
    RESERVE_NAME,
    RESERVE_ROOM_MIN,
    RESERVE_SIZE,
    Reserve,
)
from tests.storage.builders import Freeing, data_disk

PATH = f"data/{RESERVE_NAME}"
NOTE_SIZE = 100


def a_reserve() -> tuple[Freeing, Reserve]:
    """A whole one, on a disk without any other room."""
    disk = Freeing(data_disk())
    reserve = Reserve(disk, "data")
    reserve.keep()
    assert disk.size(PATH) == RESERVE_SIZE
    disk.capacity = 0
    return disk, reserve


def note(disk: SimDisk, number: int, size: int = NOTE_SIZE) -> None:
    disk.write(f"data/note-{number}", bytes(size))


def test_one_write_is_lent_room_and_no_other_gets_any() -> None:
    """K8: what is left is kept again (V1), so hundreds of notes fit, and no other write does."""
    # Shows storage.V1.
    disk, reserve = a_reserve()
    before, count = RESERVE_SIZE, 0
    while lent(reserve, disk, count):
        count += 1
        left = disk.size(PATH) if disk.exists(PATH) else 0
        assert before - 2 * BLOCK_SIZE <= left <= before
        assert disk.capacity is not None
        assert disk.capacity < BLOCK_SIZE
        before = left
        with pytest.raises(DiskFull):
            disk.write("data/other", bytes(BLOCK_SIZE))
    assert count >= RESERVE_SIZE // BLOCK_SIZE - 1


def lent(reserve: Reserve, disk: SimDisk, number: int) -> bool:
    """Was there room for a note?"""
    try:
        reserve.lend(lambda: note(disk, number))
    except DiskFull:
        return False
    return True


def test_what_does_not_fit_leaves_the_reserve_as_it_was() -> None:
    """K8: and is not tried again and again, each time with a file removed and made."""
    disk, reserve = a_reserve()
    calls = 0

    def write_too_much() -> None:
        nonlocal calls
        calls += 1
        note(disk, 0, RESERVE_SIZE + 1)

    for expected in (2, 3, 4):
        with pytest.raises(DiskFull):
            reserve.lend(write_too_much)
        assert calls == expected
        assert disk.size(PATH) == RESERVE_SIZE
    reserve.keep()  # as a node does every few seconds
    with pytest.raises(DiskFull):
        reserve.lend(write_too_much)
    assert calls == 6


def test_nothing_new_is_begun_until_there_is_room() -> None:
    """K8: also (V2) after a restart; then the reserve is whole again."""
    # Shows storage.V2.
    disk, reserve = a_reserve()
    reserve.check()
    reserve.lend(lambda: note(disk, 0))
    for each in (reserve, Reserve(disk, "data")):
        with pytest.raises(RequestError, match="the disk is full") as caught:
            each.check()
        assert (caught.value.code, caught.value.kind) == (Code.KAFKA_STORAGE_ERROR, ErrorKind.RETRY)
        disk.capacity = RESERVE_ROOM_MIN - 1
        each.keep()
        assert each.is_drawn
        disk.capacity = 0
    disk.capacity = RESERVE_ROOM_MIN
    reserve.keep()
    reserve.check()
    assert disk.size(PATH) == RESERVE_SIZE


def test_without_a_reserve_a_write_is_refused() -> None:
    """K8: and with room there is no need of one."""
    disk = data_disk()
    reserve = Reserve(disk, "data")
    reserve.lend(lambda: note(disk, 0))
    disk.capacity = 0
    with pytest.raises(DiskFull):
        reserve.lend(lambda: note(disk, 1))
    assert not reserve.is_drawn

"""The id of a data directory: given once, kept, and another one after the disk was emptied."""

import shutil
from pathlib import Path
from uuid import UUID

import pytest

from quipu.model.ids import ZERO_UUID
from quipu.runtime.clock import ManualClock
from quipu.runtime.disks.disk import DiskFull, RealDisk
from quipu.runtime.disks.sim_disk import SimDisk
from quipu.runtime.rng import SeededRng
from quipu.storage.config import LogConfig
from quipu.storage.directory.data_directory import DataDirectory
from quipu.storage.directory.directory_id import ID_NAME

ONE, TWO = UUID(int=1), UUID(int=2)


def test_an_id_lasts_as_long_as_the_directory(tmp_path: Path) -> None:
    """V16: a node that comes back with another disk does not take it for the one it had."""
    disk, path = RealDisk(), tmp_path / "data"
    for new_id, expected in ((ONE, ONE), (TWO, ONE)):
        directory = DataDirectory.open(disk, str(path), ManualClock())
        assert directory.identify(new_id) == expected
        directory.close()
    shutil.rmtree(path)
    directory = DataDirectory.open(disk, str(path), ManualClock())
    assert directory.identify(TWO) == TWO
    directory.close()


@pytest.mark.parametrize("seed", range(10))
def test_an_id_that_was_given_survives_a_loss_of_power(seed: int) -> None:
    """V16: it is reported to others only when it is durable."""
    disk = SimDisk()
    assert DataDirectory.open(disk, "data", ManualClock()).identify(ONE) == ONE
    disk.crash(SeededRng(seed))
    assert DataDirectory.open(disk, "data", ManualClock()).identify(TWO) == ONE


@pytest.mark.parametrize("data", [b"", b"no id", b"g" * 32, b"\xff" * 32])
def test_a_damaged_id_is_that_of_another_directory(data: bytes, tmp_path: Path) -> None:
    """V16: when in doubt a node catches up, rather than serve what it may not have."""
    disk, path = RealDisk(), tmp_path / "data"
    directory = DataDirectory.open(disk, str(path), ManualClock())
    directory.identify(ONE)
    (path / ID_NAME).write_bytes(data)
    assert directory.identify(TWO) == TWO
    assert directory.identify(ONE) == TWO
    directory.close()


def test_a_full_disk_keeps_only_a_new_node_from_starting() -> None:
    """V13: a directory from before there were ids is served without one for now."""
    disk = SimDisk()
    directory = DataDirectory.open(disk, "data", ManualClock())
    disk.capacity = 0
    with pytest.raises(DiskFull):
        directory.identify(ONE)
    disk.capacity = None
    directory.open_log("t-0", LogConfig(), topic_id=ONE)
    disk.capacity = 0
    assert directory.identify(ONE) == ZERO_UUID
    disk.capacity = None
    assert directory.identify(TWO) == TWO

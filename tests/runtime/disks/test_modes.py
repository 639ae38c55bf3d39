"""Files of a node and of a pipeline are readable by their owner only."""

import os
import stat
from pathlib import Path

import pytest

from quipu.pipeline.catalog import Catalog
from quipu.pipeline.durable import publish, replace_file, write_flushed
from quipu.runtime.disks.disk import RealDisk


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def open_umask() -> object:
    """Whatever the process would allow."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_directories_and_files_of_a_node_are_its_owners(tmp_path: Path) -> None:
    """K8: topics, groups and metadata."""
    disk = RealDisk()
    disk.make_directory(str(tmp_path / "data" / "t-0"))
    disk.open(str(tmp_path / "data" / "t-0" / "x.log"), create=True).close()
    lock = disk.lock(str(tmp_path / "data" / "lock"))
    assert lock is not None
    lock.release()
    assert mode(tmp_path / "data" / "t-0") == 0o700
    assert mode(tmp_path / "data" / "t-0" / "x.log") == 0o600
    assert mode(tmp_path / "data" / "lock") == 0o600


def test_the_state_of_a_pipeline_is_its_owners(tmp_path: Path) -> None:
    """K8: the catalog holds passwords, tables hold rows."""
    with Catalog.open(tmp_path / "state"):
        pass
    assert mode(tmp_path / "state") == 0o700
    assert all(mode(each) == 0o600 for each in (tmp_path / "state").iterdir())
    write_flushed(tmp_path / "a", [b"x"])
    replace_file(tmp_path / "b", b"x")
    publish(tmp_path / "c", "x")
    assert {mode(tmp_path / name) for name in "abc"} == {0o600}

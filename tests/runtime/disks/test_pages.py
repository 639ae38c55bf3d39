"""Pages of mapped files."""

from pathlib import Path

import psutil

from quipu.runtime.disks.disk import RealDisk
from quipu.runtime.disks.mapping import release_pages
from quipu.storage.inspect.examine import Examination
from quipu.storage.inspect.files import find_logs
from quipu.wire.record_batch import Record
from tests.storage.inspect.build import LogBuilder

MIB = 1 << 20


def test_released_pages_read_the_same_again(tmp_path: Path) -> None:
    """T9: giving memory back changes no byte."""
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 4_096)
    view = RealDisk().map(str(path))
    before = bytes(view)

    release_pages(view, len(view))

    assert bytes(view) == before
    release_pages(memoryview(b"not mapped"), 5)


def test_looking_at_a_large_log_takes_little_memory(tmp_path: Path) -> None:
    """T9: 256 MiB read with less than 100 MiB more in memory at any time."""
    builder = LogBuilder()
    first = builder.append([Record(None, bytes(8 * MIB))])
    path = builder.write(tmp_path)
    with (path / f"{0:020d}.log").open("ab") as file:
        for _ in range(31):
            batch = builder.append([Record(None, bytes(8 * MIB))])
            file.write(batch)
    builder.segments.clear()
    del first, batch
    process = psutil.Process()
    (log,) = find_logs(RealDisk(), str(path))
    before = peak = process.memory_info().rss

    for _ in Examination(RealDisk(), log):
        peak = max(peak, process.memory_info().rss)

    assert peak - before < 100 * MIB

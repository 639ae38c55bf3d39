"""The CPU time and memory that a process has used, from /proc."""

import os
from pathlib import Path
from typing import NamedTuple


class ProcessUsage(NamedTuple):
    """What a process has used since it started."""

    cpu_seconds: float
    resident_bytes: int


def usage_of(pid: int) -> ProcessUsage:
    """CPU time of all threads, and resident memory; raises OSError if there is no such process."""
    try:
        nanoseconds = sum(
            int((task / "schedstat").read_text().split()[0])
            for task in Path(f"/proc/{pid}/task").iterdir()
        )
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (ValueError, IndexError) as error:  # it ended while its files were read
        raise ProcessLookupError(f"no process {pid}") from error
    return ProcessUsage(nanoseconds / 1e9, pages * os.sysconf("SC_PAGE_SIZE"))

"""Topics of many logs that are removed, and what a start does about one that was under way."""

from uuid import UUID

from quipu.runtime.clock import ManualClock
from quipu.runtime.disks.sim_disk import SimDisk
from quipu.runtime.rng import SeededRng
from quipu.storage.config import LogConfig
from quipu.storage.directory.data_directory import DataDirectory
from tests.storage.builders import NOW_MS, append

ID = UUID(int=1)
OTHER_ID = UUID(int=2)
CONFIG = LogConfig()


def open_directory(disk: SimDisk) -> DataDirectory:
    return DataDirectory.open(disk, "data", ManualClock(NOW_MS))


def test_a_crash_while_a_topic_is_removed_leaves_nothing_of_it() -> None:
    """K5, T12: the next start removes the rest, whether or not the node could write it down, and
    touches nothing else; one crash more while it does so changes nothing.
    """
    # Shows storage.N7.
    disk = SimDisk()
    directory = open_directory(disk)
    gone = [directory.open_log(f"t-{number}", CONFIG, topic_id=ID) for number in range(6)]
    kept = directory.open_log("t-0", CONFIG, topic_id=OTHER_ID)
    for log in (*gone, kept):
        append(log, [b"x"])
        log.flusher.flush_now()
    directory.remember()
    directory.begin_removal(ID)
    directory.delete_logs(gone[:2])
    disk.crash(SeededRng(1))

    for _ in range(2):
        directory = open_directory(disk)
        assert directory.names() == [kept.directory.entry]
        assert directory._node_log.removing == {}
        disk.crash(SeededRng(2))
    again = open_directory(disk).open_log("t-0", CONFIG, topic_id=OTHER_ID)
    assert (again.failure, again.end_offset) == (None, 1)


def test_a_removal_that_is_over_is_forgotten() -> None:
    """K5: also by the account that is written when the memory has grown."""
    disk = SimDisk()
    directory = open_directory(disk)
    for topic_id in (ID, OTHER_ID):
        directory.open_log("t-0", CONFIG, topic_id=topic_id)
        directory.begin_removal(topic_id)
    directory._node_log._live_size = 0
    directory._node_log.log.roll(NOW_MS)
    directory.delete_logs([log for log in directory._logs.values() if log.directory.topic_id == ID])
    directory.end_removal(ID)
    assert list(directory._node_log.removing) == [OTHER_ID]
    directory.close()
    directory = open_directory(disk)
    assert directory._node_log.removing == {}
    assert directory.names() == []

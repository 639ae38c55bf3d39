"""What passes on a disk costs no log: full, or out of descriptors, and then not any more."""

import pytest

from quipu.model.ids import LogOffset
from quipu.runtime.clock import ManualClock
from quipu.runtime.disks.disk import DiskBusy, DiskError, DiskFull
from quipu.runtime.disks.sim_disk import SimDisk
from quipu.storage.config import LogConfig
from quipu.storage.directory.data_directory import DataDirectory
from quipu.storage.directory.reserve import RESERVE_NAME, RESERVE_SIZE
from quipu.storage.log_directory import RecoveryPoint
from tests.storage.builders import (
    NOW_MS,
    TOPIC_ID,
    Freeing,
    append,
    data_disk,
    open_log,
    read_all,
    segment_names,
)

BUSY = DiskBusy("no descriptors")
EAGER = LogConfig(segment_bytes=700, index_interval_bytes=100, flush_messages=1)


class Moody(SimDisk):
    """A disk that refuses one kind of call while the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses: dict[str, DiskError] = {}
        self.make_directory("data")

    def _ask(self, what: str) -> None:
        if what in self.refuses:
            raise self.refuses[what]

    def open(self, path: str, *, create: bool = False):  # noqa: ANN201 as above it
        self._ask("open")
        return super().open(path, create=create)

    def map(self, path: str) -> memoryview:
        self._ask("map")
        return super().map(path)

    def write(self, path: str, data: bytes | bytearray | memoryview) -> None:
        self._ask("write")
        super().write(path, data)

    def copy(self, source: str, target: str, *, start: int, end: int) -> None:
        self._ask("copy")
        super().copy(source, target, start=start, end=end)

    def sync_directory(self, path: str) -> None:
        self._ask("sync_directory")
        super().sync_directory(path)


@pytest.mark.parametrize("what", ["open", "write", "sync_directory"])
@pytest.mark.parametrize("error", [BUSY, DiskFull("no room")])
def test_a_log_goes_on_where_it_was_refused(what: str, error: DiskError) -> None:
    """K8, T12: rolls, indexes and directories; what was acknowledged is there, once."""
    disk = Moody()
    log = open_log(disk, EAGER)
    written = []
    for number in range(60):
        disk.refuses = {what: error} if number % 10 > 4 else {}
        try:
            append(log, [b"%d" % number])
        except type(error):
            continue
        written.append(b"%d" % number)
        log.flusher.flush_due(NOW_MS + number)
    assert log.failure is None
    disk.refuses = {}
    log.flusher.flush_due(NOW_MS + 10_000)
    log.flusher.flush_now()
    assert [value for _, value in read_all(log)] == written
    assert log.flusher.flushed_log == log.log_end
    assert len(written) >= 30
    clean = log.close()
    assert clean is not None
    again = open_log(disk, EAGER, RecoveryPoint(clean.log_end))
    assert [value for _, value in read_all(again)] == written


def test_a_log_that_stays_refused_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """K8: it is tried again every second, and there may be thousands; another error is logged."""
    disk = Moody()
    disk.refuses = {"open": BUSY}
    log = open_log(disk, EAGER)
    for number in range(50):
        assert not log.retry(NOW_MS + number)
    assert caplog.text.count("is offline for now") == 1
    disk.refuses = {"open": DiskFull("no room")}
    assert not log.retry(NOW_MS)
    assert not log.retry(NOW_MS)
    assert caplog.text.count("is offline for now") == 2
    disk.refuses = {}
    assert log.retry(NOW_MS)
    append(log, [b"x"])


def test_waiters_wait_until_a_flush_goes_well() -> None:
    """T12: a directory that cannot be opened for now fails no log."""
    # Shows storage.G4.
    disk = Moody()
    log = open_log(disk, LogConfig())
    append(log, [b"x"])
    outcomes: list[Exception | None] = []
    disk.refuses = {"sync_directory": BUSY}
    log.flusher.when_flushed(log.end_offset, outcomes.append)
    log.flusher.flush_due(NOW_MS + 1)
    assert outcomes == []
    disk.refuses = {}
    log.flusher.flush_due(NOW_MS + 2)
    assert outcomes == [None]


def test_a_sync_that_fails_is_final_whatever_it_says() -> None:
    """T12: the kernel may have dropped what it could not write."""
    disk = Moody()
    log = open_log(disk, LogConfig())
    append(log, [b"x"])
    disk.sync_error = DiskError("no space left on device")
    with pytest.raises(DiskError):
        log.flusher.flush_now()
    assert log.failure is not None
    assert not log.retry(NOW_MS)


@pytest.mark.parametrize("what", ["open", "map"])
def test_a_log_that_cannot_be_opened_now_is_opened_later(what: str) -> None:
    """K8: after a crash, and after a clean stop."""
    disk = Moody()
    log = open_log(disk, EAGER)
    for number in range(20):
        append(log, [b"%d" % number])
    expected = read_all(log)
    disk.kill()
    disk.refuses = {what: BUSY}
    again = open_log(disk, EAGER)
    if what == "open":
        assert again.failure is BUSY
        with pytest.raises(DiskBusy):
            append(again, [b"x"])
        assert not again.retry(NOW_MS)
    disk.refuses = {}
    again.retry(NOW_MS)
    assert again.failure is None
    assert read_all(again) == expected
    assert append(again, [b"x"]).base_offset == 20


def test_a_cut_without_room_leaves_the_log_as_it_was() -> None:
    """T12, V9: what could not be kept aside is not cut."""
    disk = Moody()
    log = open_log(disk, EAGER)
    for number in range(20):
        append(log, [b"%d" % number])
    expected, names = read_all(log), segment_names(disk)
    disk.refuses = {"copy": DiskFull("no room")}
    with pytest.raises(DiskFull):
        log.truncate(LogOffset(log.segments[1].base_log + 4), NOW_MS)
    assert read_all(log) == expected
    assert segment_names(disk) == names
    assert append(log, [b"next"]).base_offset == 20
    disk.refuses = {}
    cut = log.truncate(LogOffset(log.segments[1].base_log + 4), NOW_MS)
    assert cut is not None
    assert read_all(log) == expected[: log.end_offset]


def test_a_node_starts_and_deletes_and_stops_on_a_full_disk() -> None:
    """K8: what it notes of itself needs no more room than it has kept."""
    disk = data_disk()
    clock = ManualClock()
    directory = DataDirectory.open(disk, "data", clock)
    log = directory.open_log("t-0", EAGER, topic_id=TOPIC_ID)
    append(log, [b"kept"])
    other = directory.open_log("u-0", EAGER, topic_id=TOPIC_ID)
    append(other, [b"goes"])
    log.flusher.flush_now()
    directory.reserve.keep()
    assert disk.size(f"data/{RESERVE_NAME}") == RESERVE_SIZE
    disk.capacity = 0
    with pytest.raises(DiskFull):
        append(log, [b"refused"])
    assert directory.refusals == 1
    directory.delete_logs([other])
    with pytest.raises(DiskFull):
        directory.remember()
    directory.close()
    full = Freeing(disk)
    directory = DataDirectory.open(full, "data", clock)
    assert 0 < full.size(f"data/{RESERVE_NAME}") < RESERVE_SIZE
    assert [name for name in directory.names() if name.startswith("u-0")] == []
    log = directory.open_log("t-0", EAGER, topic_id=TOPIC_ID)
    assert read_all(log) == [(0, b"kept")]
    full.capacity = None
    append(log, [b"more"])
    directory.remember()
    directory.close()


def test_without_a_reserve_a_start_on_a_full_disk_says_so() -> None:
    """K8: nothing is changed, and the next try goes as it should."""
    disk = data_disk()
    DataDirectory.open(disk, "data", ManualClock()).close()
    disk.capacity = 0
    with pytest.raises(DiskFull):
        DataDirectory.open(disk, "data", ManualClock())
    disk.capacity = None
    DataDirectory.open(disk, "data", ManualClock()).close()

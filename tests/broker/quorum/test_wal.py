"""The quorum's log on disk: what was written comes back, whenever the writing stops."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.broker.quorum import wal as wal_module
from quipu.broker.quorum.wal import Loaded, Wal
from quipu.model.batch_types import CONFIGURATION, CONTROLLER, GROUP, SNAPSHOT, VOTE
from quipu.model.errors import CorruptLog
from quipu.model.ids import NO_NODE, Epoch, NodeId, RaftIndex, Term
from quipu.raft.membership import Configuration
from quipu.raft.messages import HardState, RaftEntry, Snapshot
from quipu.runtime.clock import ManualClock
from quipu.runtime.disks.disk import Disk, DiskFull, RealDisk
from quipu.runtime.disks.sim_disk import SimDisk
from quipu.runtime.rng import SeededRng
from quipu.storage.log import Log
from quipu.wire.record_batch import Record
from tests.broker.quorum.quorums import new_disk, open_log
from tests.killed import killed

CLOCK = ManualClock()
NODE = NodeId(1)
DIRECTORY = "data/__cluster-0"
VOTERS = Configuration.of([1, 2, 3])


def open_wal(disk: Disk, directory: str = DIRECTORY) -> tuple[Wal, Loaded, Log]:
    log = open_log(disk, directory)
    wal = Wal(log, NODE, CLOCK)
    return wal, wal.load(), log


def entry(index: int, term: int = 1, *commands: bytes) -> RaftEntry:
    return RaftEntry(RaftIndex(index), Term(term), CONTROLLER,
                     commands or (b"%d.%d" % (term, index),))


def first_entry() -> RaftEntry:
    return RaftEntry(RaftIndex(1), Term(1), CONFIGURATION, (VOTERS.encode(),))


def snapshot(index: int, *items: bytes) -> Snapshot:
    return Snapshot(RaftIndex(index), Term(1), VOTERS, items)


def write(wal: Wal, items: Sequence[HardState | RaftEntry | Snapshot]) -> None:
    wal.add(items)
    wal.push()


def test_what_was_written_is_loaded() -> None:
    """T7: broker.quorum.W1; votes, entries of both types, commands that belong together."""
    disk = new_disk()
    wal, loaded, log = open_wal(disk)
    assert loaded.stored.is_nothing
    state = HardState(Term(3), NodeId(2), is_blank=True)
    entries = (first_entry(), entry(2, 1, b"a", b"", b"c"), entry(3, 3))
    write(wal, [state, *entries])
    assert {VOTE, CONTROLLER, CONFIGURATION} <= {
        batch.header.batch_type for batch in log.read_stored()}
    log.flusher.flush_now()

    stored = open_wal(disk)[1].stored
    assert (stored.hard_state, stored.entries) == (state, entries)
    assert stored.configuration is None  # it is among the entries


def test_an_entry_voids_those_at_and_above_its_index() -> None:
    """T7: a conflict needs no truncation."""
    disk = new_disk()
    wal, _, log = open_wal(disk)
    write(wal, [first_entry(), entry(2), entry(3), entry(4), entry(3, 2)])
    log.flusher.flush_now()

    assert open_wal(disk)[1].stored.entries == (first_entry(), entry(2), entry(3, 2))


def test_an_image_replaces_what_was_before_and_keeps_what_is_above() -> None:
    """T7: broker.quorum.W3; with the vote; old segments go when it is durable, not before."""
    disk = new_disk()
    wal, _, log = open_wal(disk)
    state = HardState(Term(2), NodeId(3))
    write(wal, [state, first_entry(), *(entry(index) for index in range(2, 30))])
    disk.is_deferred = True
    wal.compact(snapshot(20, b"x", b"y"), [entry(index) for index in range(21, 30)])
    wal.flushed()
    assert len(log.segments) == 2
    log.flusher.flush_now()
    wal.flushed()
    assert len(log.segments) == 1
    write(wal, [entry(30)])
    log.flusher.flush_now()

    loaded = open_wal(disk)[1]
    assert loaded.items == (b"x", b"y")
    assert loaded.stored.hard_state == state
    assert (loaded.stored.snapshot_index, loaded.stored.snapshot_term) == (20, 1)
    assert loaded.stored.configuration == VOTERS
    assert [found.index for found in loaded.stored.entries] == list(range(21, 31))


def test_an_image_that_was_sent_replaces_everything() -> None:
    disk = new_disk()
    wal, _, log = open_wal(disk)
    write(wal, [first_entry(), entry(2), snapshot(50), entry(51)])
    log.flusher.flush_now()

    loaded = open_wal(disk)[1]
    assert loaded.items == ()
    assert loaded.stored.snapshot_index == 50
    assert loaded.stored.entries == (entry(51),)


def test_a_torn_image_is_ignored_at_every_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    """T7, T12: broker.quorum.W4; a kill at any moment leaves the old log or the new one, whole."""
    monkeypatch.setattr(wal_module, "BATCH_SIZE_MAX", 8)  # many batches
    disk = new_disk()
    wal, _, log = open_wal(disk)
    state = HardState(Term(4), NodeId(2))
    entries = [first_entry(), *(entry(index) for index in range(2, 6))]
    write(wal, [state, *entries])
    wal.compact(snapshot(3, b"some", b"state of", b"a few items"), entries[3:])
    log.flusher.flush_now()
    *_, new = (name for name in disk.list(DIRECTORY) if name.endswith(".log"))

    outcomes = set()
    for size in range(disk.size(f"{DIRECTORY}/{new}") + 1):
        loaded = open_wal(_torn(disk, new, size))[1]
        assert loaded.stored.hard_state == state
        assert loaded.stored.entries[-2:] == tuple(entries[3:])
        outcomes.add((loaded.stored.snapshot_index, loaded.items))
    assert outcomes == {(0, None), (3, (b"some", b"state of", b"a few items"))}


def _torn(disk: SimDisk, name: str, size: int) -> SimDisk:
    """A copy of `disk` on which the file `name` ends early."""
    copy = new_disk()
    copy.make_directory(DIRECTORY)
    copy.sync_directory(DIRECTORY)
    for each in disk.list(DIRECTORY):
        data = disk.read(f"{DIRECTORY}/{each}")
        copy.set_data(f"{DIRECTORY}/{each}", data[:size] if each == name else data)
    return copy


def test_life_goes_on_after_a_torn_image(tmp_path: Path) -> None:
    """T12: what follows it is not taken for a part of it."""
    path = tmp_path / "a"
    wal, _, log = open_wal(RealDisk(), str(path))
    write(wal, [first_entry(), entry(2), entry(3)])
    wal.compact(snapshot(2, b"torn"), [entry(3)])
    log.flusher.flush_now()
    new = max(path.glob("*.log"))
    copy = killed(path, tmp_path / "b")
    with (copy / new.name).open("r+b") as file:
        file.truncate(new.stat().st_size - 1)

    wal, loaded, log = open_wal(RealDisk(), str(copy))
    assert loaded.items is None
    write(wal, [entry(4)])
    log.flusher.flush_now()
    again = open_wal(RealDisk(), str(killed(copy, tmp_path / "c")))[1]
    assert again.stored.entries == (first_entry(), entry(2), entry(3), entry(4))
    wal.compact(snapshot(3, b"whole"), [entry(4)])
    log.flusher.flush_now()
    last = open_wal(RealDisk(), str(killed(copy, tmp_path / "d")))[1]
    assert (last.items, last.stored.entries) == ((b"whole",), (entry(4),))


def test_an_image_whose_end_disagrees_does_not_count() -> None:
    """T12: number and checksum of what it holds are part of the end."""
    disk = new_disk()
    wal, _, log = open_wal(disk)
    write(wal, [first_entry(), entry(2)])
    begin = wal_module._BEGIN.pack(CONTROLLER, 2, 1, 1, -1, False) + VOTERS.encode()
    wal._append(SNAPSHOT, [(wal_module.BEGIN, begin), (wal_module.ITEM, b"z"),
                           (wal_module.END, wal_module._END.pack(1, 12345))])
    log.flusher.flush_now()

    assert open_wal(disk)[1].stored.entries == (first_entry(), entry(2))


def test_a_log_without_its_beginning_and_without_an_image_is_refused(tmp_path: Path) -> None:
    """T12: what cannot be complete is not served."""
    wal, _, log = open_wal(RealDisk(), str(tmp_path / "a"))
    write(wal, [first_entry()])
    log.roll(CLOCK.now_ms())
    write(wal, [entry(2)])
    log.flusher.flush_now()
    first = min((tmp_path / "a").glob("*.log"))
    first.unlink()
    first.with_suffix(".index").unlink(missing_ok=True)

    with pytest.raises(CorruptLog, match="no snapshot is complete"):
        open_wal(RealDisk(), str(killed(tmp_path / "a", tmp_path / "b")))


def test_entries_with_a_gap_are_refused() -> None:
    disk = new_disk()
    wal, _, log = open_wal(disk)
    write(wal, [first_entry(), entry(5)])
    log.flusher.flush_now()
    with pytest.raises(CorruptLog, match="entry 5 after entry 1"):
        open_wal(disk)


def test_batches_of_other_types_are_passed_over() -> None:
    """T11: what this version does not know is left where it is."""
    disk = new_disk()
    wal, _, log = open_wal(disk)
    write(wal, [first_entry()])
    for batch_type in (99, GROUP):
        log.append_records(batch_type, [Record(None, b"x", (), 0)], epoch=Epoch(0),
                           now_ms=CLOCK.now_ms())
    write(wal, [entry(2)])
    log.flusher.flush_now()
    assert open_wal(disk)[1].stored.entries == (first_entry(), entry(2))


def test_a_full_disk_puts_off_and_loses_nothing() -> None:
    """T12: what could not be written is written later, in its place."""
    disk = new_disk()
    wal, _, log = open_wal(disk)
    disk.capacity = 250
    wal.add([first_entry(), *(entry(index) for index in range(2, 9))])
    with pytest.raises(DiskFull):
        wal.push()
    assert not wal.is_written
    disk.capacity = None
    wal.push()
    log.flusher.flush_now()

    assert [found.index for found in open_wal(disk)[1].stored.entries] == list(range(1, 9))


STEPS = st.lists(st.one_of(
    st.tuples(st.just("append"), st.integers(1, 3)),
    st.tuples(st.just("replace"), st.integers(1, 3)),
    st.tuples(st.just("vote"), st.integers(1, 3)),
    st.tuples(st.just("snapshot"), st.integers(0, 4)),
    st.tuples(st.just("flush"), st.just(0)),
    st.tuples(st.just("crash"), st.integers(0, 99))), max_size=25)


@settings(max_examples=60)
@given(steps=STEPS)
def test_any_history_survives_crashes(steps: list[tuple[str, int]]) -> None:
    """T7, T12: broker.quorum.W2; after a crash the log is as at some moment since a flush."""
    disk = new_disk()
    disk.is_deferred = True
    wal, _, log = open_wal(disk)
    model = _Model()
    safe, since = model.seen(), [model.seen()]
    for kind, number in steps:
        if kind == "flush":
            log.flusher.flush_now()
            wal.flushed()
            safe, since = model.seen(), []
        elif kind == "crash":
            disk.crash(SeededRng(number))
            wal, loaded, log = open_wal(disk)
            found = _seen(loaded)
            assert found in [safe, *since], (found, safe, since)
            model.adopt(loaded)
            safe, since = found, []
        else:
            for moment in model.change(wal, kind, number):
                since.append(moment)


class _Model:
    """What a log should hold."""

    def __init__(self) -> None:
        self.term = 1
        self.state = HardState()
        self.snapshot: Snapshot | None = None
        self.entries: list[RaftEntry] = []

    def seen(self) -> tuple:
        index = self.snapshot.index if self.snapshot else 0
        items = self.snapshot.items if self.snapshot else None
        return self.state, index, items, tuple(self.entries)

    def adopt(self, loaded: Loaded) -> None:
        stored = loaded.stored
        self.state, self.entries = stored.hard_state, list(stored.entries)
        self.snapshot = None
        if loaded.items is not None:
            self.snapshot = snapshot(stored.snapshot_index, *loaded.items)

    def change(self, wal: Wal, kind: str, number: int) -> list[tuple]:
        """Write something; gives every state that it goes through."""
        moments = []
        if kind == "vote":
            self.term += number
            self.state = HardState(Term(self.term), NO_NODE)
            write(wal, [self.state])
        elif kind == "snapshot":
            self._compact(wal, number)
        else:
            if kind == "replace":
                del self.entries[-number:]
            for _ in range(number):
                last = self.entries[-1].index if self.entries else (
                    self.snapshot.index if self.snapshot else 0)
                self.entries.append(first_entry() if last == 0 else entry(last + 1, self.term))
                write(wal, [self.entries[-1]])
                moments.append(self.seen())
        return [*moments, self.seen()]

    def _compact(self, wal: Wal, kept: int) -> None:
        gone = len(self.entries) - kept
        if gone <= 0:
            return
        self.snapshot = snapshot(self.entries[gone - 1].index, b"i%d" % gone)
        self.entries = self.entries[gone:]
        wal.compact(self.snapshot, self.entries)


def _seen(loaded: Loaded) -> tuple:
    stored = loaded.stored
    return stored.hard_state, stored.snapshot_index, loaded.items, stored.entries

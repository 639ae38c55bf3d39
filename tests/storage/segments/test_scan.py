"""A scan that walks over runs finds what one that looks at every batch finds, in every case."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.model.batch_types import CONFIGURATION
from quipu.model.errors import CorruptLog
from quipu.model.ids import Epoch, Offset
from quipu.runtime.disks.sim_disk import SimDisk
from quipu.storage.config import LogConfig
from quipu.storage.derived import producers
from quipu.storage.derived.producers import ProducerStates
from quipu.storage.log import Log
from quipu.storage.log_directory import RecoveryPoint
from quipu.storage.segments import scan
from quipu.wire.record_batch import Record
from tests.storage.builders import DIRECTORY, NOW_MS, append, data_disk, open_log

CONFIG = LogConfig(index_interval_bytes=250)


@contextmanager
def patched(module: Any, **names: Any) -> Iterator[None]:
    """As pytest's monkeypatch, for the length of one example."""
    before = {name: getattr(module, name) for name in names}
    for name, value in names.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


def found(data: bytes, path: str, flushed: int, window_size: int = 1 << 20) -> list[Any]:
    """All that recovery makes of a segment with these bytes."""
    disk = data_disk()
    disk.make_directory(DIRECTORY)
    disk.set_data(path, data)
    with patched(scan, WINDOW_SIZE=window_size):
        log = open_log(disk, CONFIG, RecoveryPoint(flushed_log=flushed))
    if log.failure is not None:
        return [str(log.failure), disk.read(path)]
    active = log.segments[-1]
    assert active._index is not None
    return [
        log.end_offset, log.log_end, log.log_start_offset, log.leader_epoch,
        log.epochs.encode(), log.producers.encode(), active.summary,
        active.index_due, bytes(active._index._data), disk.read(path),
        [disk.read(f"{DIRECTORY}/{name}") for name in disk.list(DIRECTORY) if "torn" in name],
    ]


def batch_by_batch(data: bytes, path: str, flushed: int) -> list[Any]:
    with patched(scan.Scan, skim=lambda _, **options: None):
        return found(data, path, flushed)


actions = st.lists(st.one_of(
    st.tuples(st.just("data"), st.integers(1, 3), st.sampled_from([-1, -1, 5, 6, 7]),
              st.integers(-50, 50)),
    st.tuples(st.just("data"), st.integers(1, 3), st.sampled_from([-1, 5]), st.just(0)),
    st.tuples(st.sampled_from(["internal", "epoch", "restart", "delete"]), st.just(0), st.just(0),
              st.just(0)),
), min_size=1, max_size=30)


def write(log: Log, steps: list[tuple[str, int, int, int]]) -> None:
    """Append batches of every kind."""
    epoch, producer_epoch, sequences = 0, 0, dict.fromkeys((5, 6, 7), 0)
    for step, count, producer_id, delay in steps:
        if step == "epoch":
            epoch += 1
        elif step == "restart":  # of all producers
            producer_epoch, sequences = producer_epoch + 1, dict.fromkeys(sequences, 0)
        elif step == "internal":
            log.append_records(CONFIGURATION, [Record(None, b"c")], epoch=Epoch(epoch),
                               now_ms=NOW_MS)
        elif step == "delete":
            log.delete_records(Offset(log.end_offset), NOW_MS)
        else:
            producer = (-1, -1, -1)
            if producer_id >= 0:
                producer = (producer_id, producer_epoch, sequences[producer_id])
                sequences[producer_id] += count
            append(log, [b"v" * 9] * count, timestamp=NOW_MS + delay, producer=producer,
                   epoch=epoch)


@given(steps=actions, window_size=st.sampled_from([1, 100, 333, 1000, 1 << 20]), data=st.data())
@settings(max_examples=200, deadline=None)
def test_a_scan_of_runs_finds_what_a_scan_of_batches_finds(
    steps: list[tuple[str, int, int, int]], window_size: int, data: st.DataObject
) -> None:
    """T12: the same offsets, index, epochs, producers, fault and cut, whole or damaged."""
    disk = data_disk()
    log = open_log(disk, CONFIG)
    write(log, steps)
    path = log.segments[-1].path
    stored = bytearray(disk.read(path))
    if data.draw(st.booleans()):
        position = data.draw(st.integers(0, len(stored) - 1))
        stored[position] ^= data.draw(st.integers(1, 255))
    if data.draw(st.booleans()):
        del stored[data.draw(st.integers(0, len(stored))) :]
    flushed = data.draw(st.integers(0, log.log_end))
    whole = bytes(stored)
    assert found(whole, path, flushed, window_size) == batch_by_batch(whole, path, flushed)


def many_small() -> tuple[SimDisk, Log]:
    disk = data_disk()
    log = open_log(disk, CONFIG)
    for number in range(200):
        append(log, [b"%d" % number], producer=(number % 3, 0, number // 3))
    return disk, log


def test_nearly_all_of_a_segment_is_walked_in_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """T12: only the checkpoint and the batch after it are looked at one by one."""
    disk, log = many_small()
    looked_at = []
    plain = scan.Scan._fault_of
    monkeypatch.setattr(scan.Scan, "_fault_of", lambda self, start, header: (
        looked_at.append(header.log_offset), plain(self, start, header))[1])
    again = open_log(disk, CONFIG)
    assert again.end_offset == log.end_offset == 200
    assert again.producers.seen(1) == log.producers.seen(1)
    assert len(looked_at) == 2


def test_damage_within_a_run_is_found_at_its_exact_position() -> None:
    """T12: the position, the log offset and the reason are those of the bad batch."""
    disk, log = many_small()
    path = log.segments[-1].path
    stored = list(log.read_stored())
    bad = stored[120]
    disk.flip(path, bad.position + 80)
    log = open_log(disk, CONFIG, RecoveryPoint(flushed_log=log.log_end))
    assert isinstance(log.failure, CorruptLog)
    assert (f"bad body checksum, at position {bad.position}, log offset {bad.header.log_offset}"
            in str(log.failure))


def test_a_lost_index_of_small_batches_is_rebuilt_as_it_was() -> None:
    """V1: byte for byte, by runs as by appends."""
    disk, log = many_small()
    log.roll(NOW_MS)
    log.flusher.flush_now()
    index_path = log.segments[0].index_path
    before = disk.read(index_path)
    disk.remove(index_path)
    open_log(disk, CONFIG)
    assert disk.read(index_path) == before


def test_producers_of_a_run_are_noted_as_those_of_its_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """K2: and if there is no room, it is others that are forgotten."""
    _, log = many_small()
    one_by_one = ProducerStates()
    for batch in log.read_stored():
        if batch.header.producer_id >= 0:
            one_by_one.note(batch.header.batch, batch.header.base_offset, 9)
    at_once = ProducerStates()
    at_once.note_run([(producer_id, 0, [(7, 0, 3)]) for producer_id in (2, 0)], 8)
    at_once.note_run([
        (producer_id, 0, [(seen.first_sequence, 0, seen.base_offset)
                          for seen in one_by_one.seen(producer_id)])
        for producer_id in (0, 1, 2)], 9)
    assert at_once.encode() == one_by_one.encode()

    monkeypatch.setattr(producers, "PRODUCERS_MAX", 3)
    at_once.note_run([(2, 0, [(99, 0, 200)]), (8, 4, [(0, 1, 201)])], 10)
    assert [info.producer_id for info in at_once.infos()] == [1, 2, 8]
    assert len(at_once.seen(2)) == producers.BATCHES_KEPT
    at_once.note_run([(8, 5, [(0, 0, 203), (1, 0, 204)])], 11)
    assert at_once.seen(8) == ((0, 0, 203), (1, 1, 204))

"""State logs: what was acknowledged is replayed, whenever the process or machine stops."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.model.batch_types import CONTROLLER, GROUP, SNAPSHOT
from quipu.model.errors import CorruptLog
from quipu.model.ids import Epoch
from quipu.runtime.clock import ManualClock
from quipu.runtime.disks.disk import RealDisk
from quipu.storage import state_log
from quipu.storage.config import LogConfig
from quipu.storage.log import Log
from quipu.storage.log_directory import LogDirectory
from quipu.storage.state_log import StateLog
from quipu.wire.record_batch import Record
from tests.killed import killed
from tests.looped import looped
from tests.storage.log_storage import LogStorage

CLOCK = ManualClock()
DISK = RealDisk()
CONFIG = LogConfig(flush_messages=1, retention_ms=-1, retention_bytes=-1)


def open_log(path: Path, config: LogConfig = CONFIG) -> Log:
    directory = LogDirectory(disk=DISK, path=str(path), name="__state-0")
    return Log(directory, config, now_ms=CLOCK.now_ms())


def open_state(path: Path) -> StateLog:
    return StateLog(LogStorage(open_log(path)), CONTROLLER, CLOCK)


def replayed(path: Path) -> list[bytes]:
    found: list[bytes] = []
    open_state(path).replay(found.append)
    return found


def commands(*names: str) -> list[bytes]:
    return [name.encode() for name in names]


async def write(state: StateLog, batches: Sequence[Sequence[bytes]]) -> None:
    for batch in batches:
        await state.append(batch)


def segments(path: Path) -> list[Path]:
    return sorted(path.glob("*.log"))


@looped
async def test_what_was_appended_is_replayed(tmp_path: Path) -> None:
    """T7: commands come back in order after a stop without warning."""
    # Shows storage.SL2.
    state = open_state(tmp_path / "a")
    await write(state, [commands("a"), commands("b", "c")])

    assert replayed(killed(tmp_path / "a", tmp_path / "b")) == commands("a", "b", "c")


@looped
async def test_a_snapshot_replaces_what_was_before(tmp_path: Path) -> None:
    """T7: the log does not grow for ever; what comes after the snapshot is replayed after it."""
    # Shows storage.SL3.
    state = open_state(tmp_path / "a")
    await write(state, [commands(f"old {number}") for number in range(20)])
    await state.snapshot(commands("state"))
    assert state.commands_size == 0
    await write(state, [commands("new")])

    assert replayed(killed(tmp_path / "a", tmp_path / "b")) == commands("state", "new")
    assert len(segments(tmp_path / "a")) == 1


@looped
async def test_a_large_snapshot_lets_the_loop_turn(tmp_path: Path) -> None:
    """T7, K8: L5; others have their turn while it is written and while it is read."""
    # Shows storage.SL5.
    state = open_state(tmp_path / "a")
    many = [bytes([index % 256]) * 1000 for index in range(2000)]
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.get_running_loop().create_task(count())
    await state.snapshot(many)
    counting.cancel()

    assert turns > len(many) * 1000 // state_log.BATCH_SIZE_MAX
    assert replayed(tmp_path / "a") == many
    steps = sum(1 for _ in open_state(tmp_path / "a").replaying(lambda _: None))
    assert steps >= len(many) // state_log.RECORDS_PER_STEP


@looped
async def test_small_commands_count_for_more_than_their_bytes(tmp_path: Path) -> None:
    """K8: what is bounded is the time to replay them; the same is counted after a restart."""
    state = open_state(tmp_path / "a")
    for _ in range(10):
        await state.append(commands("a", "b"))

    assert state.commands_size == 20 * (state_log.COMMAND_SIZE + 1)
    again = open_state(killed(tmp_path / "a", tmp_path / "b"))
    again.replay(lambda _: None)
    assert again.commands_size == state.commands_size


@looped
async def test_an_empty_state_is_a_snapshot_too(tmp_path: Path) -> None:
    state = open_state(tmp_path / "a")
    await write(state, [commands("x")])
    await state.snapshot([])

    assert replayed(killed(tmp_path / "a", tmp_path / "b")) == []


@looped
async def test_a_torn_snapshot_is_ignored_at_every_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T7, T12: kill -9 at any moment of a snapshot leaves the old state or the same new one."""
    monkeypatch.setattr(state_log, "BATCH_SIZE_MAX", 8)  # many batches
    path, copy = tmp_path / "a", tmp_path / "b"
    state = open_state(path)
    await write(state, [commands("a", "b"), commands("c")])
    monkeypatch.setattr(Log, "drop_segments_before", lambda self, offset: 0)  # killed before this
    await state.snapshot(commands("a+b", "c", "and more"))
    _, new = segments(path)

    outcomes = set()
    for size in range(new.stat().st_size + 1):
        killed(path, copy)
        with (copy / new.name).open("r+b") as file:
            file.truncate(size)
        outcomes.add(tuple(replayed(copy)))

    assert outcomes == {tuple(commands("a", "b", "c")), tuple(commands("a+b", "c", "and more"))}


@looped
async def test_life_goes_on_after_a_torn_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T12: an unfinished snapshot in the middle of a log confuses no later one."""
    path, copy = tmp_path / "a", tmp_path / "b"
    state = open_state(path)
    await write(state, [commands("a")])

    def die(self: StateLog, batch_type: int, pairs: list[tuple[bytes | None, bytes]]) -> int:
        if pairs[-1][0] == state_log.END:
            raise KeyboardInterrupt
        return append(self, batch_type, pairs)

    append = StateLog._append
    monkeypatch.setattr(state_log, "BATCH_SIZE_MAX", 1)
    monkeypatch.setattr(StateLog, "_append", die)
    with pytest.raises(KeyboardInterrupt):
        await state.snapshot(commands("never", "whole"))
    monkeypatch.setattr(StateLog, "_append", append)

    again = open_state(killed(path, copy))
    found: list[bytes] = []
    again.replay(found.append)
    assert found == commands("a")
    await write(again, [commands("b")])
    assert replayed(killed(copy, tmp_path / "c")) == commands("a", "b")
    await again.snapshot(commands("a", "b"))
    await write(again, [commands("c")])
    assert replayed(killed(copy, tmp_path / "d")) == commands("a", "b", "c")


@looped
async def test_old_segments_go_in_any_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T12: a kill between the removal of two old segments changes nothing."""
    path, copy = tmp_path / "a", tmp_path / "b"
    state = open_state(path)
    log = state._storage._log
    for number in range(3):
        await write(state, [commands(f"old {number}")])
        log.roll(CLOCK.now_ms())
    monkeypatch.setattr(Log, "drop_segments_before", lambda self, offset: 0)
    await state.snapshot(commands("state"))
    await log.flusher.flush()
    files = segments(path)

    for gone in range(len(files)):
        killed(path, copy)
        for file in files[:gone]:
            (copy / file.name).unlink()
            (copy / file.name).with_suffix(".index").unlink(missing_ok=True)
        assert replayed(copy) == commands("state")


@looped
async def test_a_log_without_its_beginning_and_without_a_snapshot_is_refused(
    tmp_path: Path
) -> None:
    """T12: state that cannot be complete is not served."""
    path = tmp_path / "a"
    state = open_state(path)
    await write(state, [commands("lost")])
    state._storage._log.roll(CLOCK.now_ms())
    await write(state, [commands("kept")])
    first = segments(path)[0]
    first.unlink()
    first.with_suffix(".index").unlink(missing_ok=True)

    with pytest.raises(CorruptLog, match="no snapshot is complete"):
        replayed(killed(path, tmp_path / "b"))


@looped
async def test_batches_of_other_types_are_passed_over(tmp_path: Path) -> None:
    """T11: what this version does not know is left where it is."""
    state = open_state(tmp_path / "a")
    await write(state, [commands("a")])
    for batch_type in (99, GROUP):
        state._storage._log.append_records(
            batch_type, [Record(None, b"x", (), 0)], epoch=Epoch(0), now_ms=CLOCK.now_ms())
    await write(state, [commands("b")])

    assert replayed(killed(tmp_path / "a", tmp_path / "b")) == commands("a", "b")


@looped
async def test_a_snapshot_whose_end_disagrees_does_not_count(tmp_path: Path) -> None:
    """T12: number and checksum of the items are part of the end."""
    # Shows storage.SL4.
    state = open_state(tmp_path / "a")
    await write(state, [commands("a")])
    pairs = [(state_log.BEGIN, b"\x03"), (state_log.ITEM, b"z"),
             (state_log.END, state_log._END_VALUE.pack(1, 12345))]
    state._append(SNAPSHOT, pairs)
    await write(state, [commands("b")])

    assert replayed(killed(tmp_path / "a", tmp_path / "b")) == commands("a", "b")


@looped
async def test_a_snapshot_during_an_append_is_a_bug(tmp_path: Path) -> None:
    state = open_state(tmp_path / "a")
    pending = asyncio.ensure_future(state.append(commands("a")))
    await asyncio.sleep(0)

    with pytest.raises(AssertionError, match="snapshot while commands are appended"):
        await state.snapshot([])
    await pending


STEPS = st.lists(
    st.one_of(st.lists(st.binary(max_size=20), min_size=1, max_size=3), st.just("snapshot"),
              st.just("restart")), max_size=12)


@settings(max_examples=25)
@given(steps=STEPS)
def test_any_history_is_replayed(steps: list, tmp_path_factory: pytest.TempPathFactory) -> None:
    """T7: appends, snapshots and restarts in any order."""
    # Shows storage.SL1.
    base = tmp_path_factory.mktemp("state")

    async def run() -> tuple[list[bytes], Path]:
        lives, path = 0, base / "0"
        state, model = open_state(path), []
        for step in steps:
            if step == "snapshot":
                await state.snapshot(list(model))
            elif step == "restart":
                state._storage._log.close()
                lives += 1
                path = killed(path, base / str(lives))
                state, found = open_state(path), []
                state.replay(found.append)
                assert found == model
            else:
                await state.append(step)
                model.extend(step)
        return model, path

    model, path = asyncio.run(run())
    assert replayed(killed(path, base / "end")) == model

"""Logs that have failed: opened again in the background, or copied from another node."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from quipu.broker.partitions.partition_errors import Halted
from quipu.broker.replication import log_repairs as repairs
from quipu.model.errors import CorruptLog, QuipuError
from quipu.runtime.disks.disk import DiskError, RealDisk
from quipu.storage.config import LogConfig
from quipu.storage.directory.data_directory import DataDirectory
from quipu.storage.log import Log
from quipu.storage.reopening import PreparedLog
from tests.broker.replication.rig import ANode, Rig
from tests.looped import looped

CONFIGS = {
    "plain": LogConfig(flush_ms=60_000),
    "durable": LogConfig(flush_messages=1),
    "small": LogConfig(segment_bytes=600),
}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repairs, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(repairs, "PAUSE_SECONDS_MIN", 0.0)


async def until(rig: Rig, condition: Callable[[], object]) -> None:
    """Let ticks and real time pass, for threads have their part in this."""
    for _ in range(2000):
        await rig.turns(30)
        if condition():
            return
        await asyncio.sleep(0.005)
        await rig.pass_time()
    raise AssertionError("it did not come to be")


async def a_chain(rig: Rig, count: int) -> list[ANode]:
    nodes = rig.nodes(count)
    rig.configure(serving=range(1, count + 1))
    await until(rig, lambda: all(node.partition.is_serving for node in nodes))
    return nodes


def break_log(node: ANode, *, how: str) -> None:
    """Let the log of a node fail, as after a failed sync; perhaps with what it had."""
    log = node.partition.log
    log.flusher.flush_now()
    if how == "damaged":
        (*_, last) = sorted(Path(log.directory.path).glob("*.log"))
        data = bytearray(last.read_bytes())
        data[len(data) // 2] ^= 1
        last.write_bytes(data)
    elif how == "gone":
        for file in Path(log.directory.path).iterdir():
            file.unlink()
    log.fail(DiskError("the device does not answer"))


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("how", ["well", "damaged", "gone"])
@pytest.mark.parametrize("place", [0, 1, 2])
@looped
async def test_a_replica_whose_log_fails_joins_again(
    tmp_path: Path, place: int, how: str, config: str
) -> None:
    """V13, V16: broker.replication.O1, broker.replication.R4; head, middle or tail; opened again
    if it is well, else copied anew.  Nothing that
    was acknowledged is missing, and in the end the replicas are the same files.
    """
    rig = Rig(tmp_path, config=CONFIGS[config])
    nodes = await a_chain(rig, 3)
    values = [b"%d" % number * 40 for number in range(12)]
    for value in values:
        await nodes[0].produce(value)
    victim = nodes[place]
    others = [node for node in nodes if node is not victim]
    ids = [node.node_id for node in others]
    before = victim.partition.log
    break_log(victim, how=how)
    await until(rig, lambda: rig.failures)
    with pytest.raises(QuipuError):
        await victim.produce(b"refused")
    rig.configure(serving=ids, offline=[victim.node_id])
    await until(rig, lambda: others[0].partition.is_leader)
    assert victim.partition.log is before  # nobody has said that the metadata knows
    await others[0].produce(b"meanwhile")
    rig.is_known = True
    await until(rig, lambda: victim.partition.log.failure is None)
    assert rig.repaired == 1
    rig.configure(serving=ids, syncing=[victim.node_id], new_epoch=False)
    await until(rig, lambda: (victim.node_id, rig.version) in rig.in_sync)
    rig.configure(serving=[node.node_id for node in nodes])
    await until(rig, lambda: all(node.partition.is_serving for node in nodes))
    await nodes[0].produce(b"last")
    await rig.settled(*nodes)
    rig.check_identical(*nodes)
    assert [node.values() for node in nodes] == [[*values, b"meanwhile", b"last"]] * 3
    damaged = list((tmp_path / f"n{victim.node_id}").glob("*.damaged"))
    assert bool(damaged) == (how != "well")
    assert rig.disk_failures == []


def count_tries(patch: pytest.MonkeyPatch) -> list[Log]:
    """The logs that were given back by attempts to open one again, as they come."""
    tries: list[Log] = []
    open_again = DataDirectory.open_again

    def counted(
        self: DataDirectory, log: Log, prepared: PreparedLog, *, may_discard: bool
    ) -> Log:
        tries.append(open_again(self, log, prepared, may_discard=may_discard))
        return tries[-1]

    patch.setattr(DataDirectory, "open_again", counted)
    return tries


@looped
async def test_a_log_that_fails_again_while_it_catches_up_is_repaired_again(
    tmp_path: Path,
) -> None:
    """V13, V16: in a flush, which nobody waits for; so only a look from time to time finds it."""
    rig = Rig(tmp_path)
    a, b = await a_chain(rig, 2)
    await a.produce(b"0")
    rig.is_known = True
    rig.configure(serving=[1], offline=[2])
    for times in (1, 2, 3):
        break_log(b, how="well")
        await until(rig, lambda times=times: rig.repaired == times)  # type: ignore[misc]
        rig.configure(serving=[1], syncing=[2], new_epoch=False)
        await until(rig, lambda: (2, rig.version) in rig.in_sync)
    rig.configure(serving=[1, 2])
    await until(rig, lambda: b.partition.is_serving)


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("when", ["after appends", "after a start"])
@looped
async def test_the_last_replica_is_opened_as_it_is(
    tmp_path: Path, when: str, config: str
) -> None:
    """V13, V14: with all that it had, under a new epoch; also if nothing was written since the
    start, so that nobody but the flush has met the fault.
    """
    rig = Rig(tmp_path, config=CONFIGS[config])
    (a,) = await a_chain(rig, 1)
    for number in range(12):
        await a.produce(b"%d" % number * 40)
    if when == "after a start":
        a.crash()
        a = rig.restart(a)
        rig.configure(serving=[1])
        await until(rig, lambda: a.partition.is_serving)
    break_log(a, how="well")
    rig.is_known = True
    await until(rig, lambda: rig.repaired == 1)
    assert not a.partition.is_serving
    rig.configure(serving=[1], new_epoch=False, to=[])
    rig.configure(serving=[1])
    await until(rig, lambda: a.partition.is_serving)
    assert await a.produce(b"again") == 12
    assert len(a.values()) == 13


@pytest.mark.parametrize("how", ["damaged", "gone"])
@looped
async def test_the_last_replica_is_never_thrown_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """V14: broker.replication.O2; it stays failed however often it is tried, and its files stay as
    they are, for a person
    to decide; when they are put back it serves again.
    """
    tries = count_tries(monkeypatch)
    rig = Rig(tmp_path)
    (a,) = await a_chain(rig, 1)
    for number in range(12):
        await a.produce(b"%d" % number * 40)
    a.partition.log.flusher.flush_now()
    kept = a.files()
    break_log(a, how=how)
    left = a.files()
    rig.is_known = True
    await until(rig, lambda: len(tries) >= 3)
    assert isinstance(a.partition.log.failure, CorruptLog)
    assert a.files() == left
    assert rig.repaired == 0
    directory = Path(a.partition.log.directory.path)
    directory.mkdir(exist_ok=True)
    for name, data in kept.items():  # whole or not at all: a thread may be reading them just now
        (tmp_path / name).write_bytes(data)
        (tmp_path / name).replace(directory / name)
    await until(rig, lambda: rig.repaired == 1)
    rig.configure(serving=[1])
    await until(rig, lambda: a.partition.is_serving)
    assert len(a.values()) == 12


@looped
async def test_a_last_replica_that_lost_acknowledged_records_stays_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V14: without flush.messages=1 all that was acknowledged must be there again, whether it is
    looked for once or more often.
    """
    tries = count_tries(monkeypatch)
    rig = Rig(tmp_path, config=LogConfig(flush_ms=60_000))
    (a,) = await a_chain(rig, 1)
    await a.produce(b"kept")
    log = a.partition.log
    log.flusher.flush_now()
    size = (Path(log.directory.path) / f"{0:020d}.log").stat().st_size
    await a.produce(b"lost")
    log.fail(DiskError("the device does not answer"))
    file = Path(log.directory.path) / f"{0:020d}.log"
    file.write_bytes(file.read_bytes()[:size])
    a.replication.find(a.partition).tick()  # type: ignore[union-attr]
    rig.is_known = True
    await until(rig, lambda: len(tries) >= 3)
    assert "were acknowledged" in str(a.partition.log.failure)
    assert rig.repaired == 0


@looped
async def test_a_disk_on_which_nothing_can_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V13, V21: then it is not one log, and the whole node should be replaced."""
    rig = Rig(tmp_path)
    _, b = await a_chain(rig, 2)

    def broken(self: object) -> None:
        raise DiskError("the device is gone")

    monkeypatch.setattr("quipu.runtime.disks.disk.RealFile.sync", broken)
    b.partition.log.fail(DiskError("the device is gone"))
    b.replication.find(b.partition).tick()  # type: ignore[union-attr]
    rig.is_known = True
    await until(rig, lambda: rig.disk_failures)
    assert "the device is gone" in rig.disk_failures[0]


@looped
async def test_a_log_that_cannot_be_opened_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V13: broker.replication.O3; until it can, with pauses; not once its partition is gone."""
    rig = Rig(tmp_path)
    a, b = await a_chain(rig, 2)
    real, tried = RealDisk.copy, []

    def refused(self: RealDisk, source: str, target: str, *, start: int, end: int) -> None:
        tried.append(source)
        if len(tried) < 4:
            raise DiskError("not now")
        real(self, source, target, start=start, end=end)

    await a.produce(b"x")
    monkeypatch.setattr(RealDisk, "copy", refused)
    break_log(b, how="well")
    rig.configure(serving=[1], offline=[2])
    rig.is_known = True
    await until(rig, lambda: b.partition.log.failure is None)
    assert len(tried) == 4
    break_log(b, how="well")
    b.replication.forget(b.partition)
    await asyncio.sleep(0.1)
    assert len(tried) == 4


@looped
async def test_a_replica_that_halts_again_and_again_is_tried_less_and_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V14: what a person must look at costs the others little until then; and when it is well, or
    has been for long, it is taken up again at once.
    """
    monkeypatch.setattr(repairs, "PAUSE_SECONDS_MIN", 0.5)
    rig = Rig(tmp_path)
    (a,) = await a_chain(rig, 1)
    case = a.replication.repairs
    assert case is not None
    rig.is_known = True
    pauses = []
    for number in range(9):
        await a.produce(b"%d" % number)
        now = rig.clock.monotonic()
        a.partition.log.fail(Halted("the logs differ"))
        a.replication.find(a.partition).tick()  # type: ignore[union-attr]
        (waiting,) = case._waiting.values()
        pauses.append(waiting.due - now)
        rig.clock.advance_ms(int(pauses[-1] * 1000) + 1)
        await until(rig, lambda: rig.repaired == number + 1)  # noqa: B023 it is done before
        rig.configure(serving=[1])
        await until(rig, lambda: a.partition.is_leader)
    assert [round(pause) for pause in pauses] == [0, 1, 2, 4, 8, 16, 32, 60, 60]
    await a.produce(b"more")
    rig.clock.advance_ms(int(repairs.RELAPSE_SECONDS * 1000) + 1)
    a.partition.log.fail(Halted("the logs differ"))
    a.replication.find(a.partition).tick()  # type: ignore[union-attr]
    (waiting,) = case._waiting.values()
    assert waiting.due == rig.clock.monotonic()

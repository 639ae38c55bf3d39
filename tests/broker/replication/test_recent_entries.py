"""Batches that are sent on from memory: what is sent is what the log has, and no more is held."""

import asyncio
from pathlib import Path

import pytest

from quipu.broker.partitions.partition_errors import NotLeader
from quipu.broker.replication.recent_entries import RECENT_SIZE_MAX, RecentEntries, TurnBuffer
from quipu.chain.effects import TruncateTo
from quipu.model.ids import LogOffset
from quipu.storage.config import LogConfig
from quipu.storage.entries import EntryReader
from tests.broker.replication.rig import Rig
from tests.looped import looped


def at(number: int) -> LogOffset:
    return LogOffset(number)


def add(recent: RecentEntries, turn_buffer: TurnBuffer, start: int, end: int, batch: bytes) -> None:
    copied_end = turn_buffer.add(b"p", batch)
    assert copied_end
    recent.copied(at(start), at(end), turn_buffer, copied_end, 1 + len(batch))


def test_batches_that_follow_each_other_make_one_entry() -> None:
    """V9: and those before a gap are dropped, whatever made it."""
    recent, turn_buffer = RecentEntries(), TurnBuffer()
    add(recent, turn_buffer, 5, 6, b"one")
    add(recent, turn_buffer, 6, 8, b"two")
    assert (recent.start, recent.end, recent.size, recent.sizes) == (5, 8, 8, [8])
    assert [bytes(buffer) for buffer in recent.buffers] == [b"poneptwo"]
    add(recent, turn_buffer, 9, 10, b"three")  # a checkpoint lies between
    assert (recent.start, recent.end, recent.sizes) == (9, 10, [6])
    assert recent.copy() == [b"pthree"]


def test_partitions_share_the_turn_buffer() -> None:
    """V9: broker.replication.M3, broker.replication.M4; each sends its own, up to a limit."""
    one, other, turn_buffer = RecentEntries(), RecentEntries(), TurnBuffer()
    for number in range(4):
        add(one, turn_buffer, number, number + 1, b"a%d" % number)
        if number % 2:
            add(other, turn_buffer, number, number + 1, b"b%d" % number)
    assert one.copy() == [b"pa0pa1pa2pa3"]
    assert other.copy() == [b"pb3"]
    assert not turn_buffer.add(b"p", bytes(RECENT_SIZE_MAX))
    turn_buffer.clear()
    assert turn_buffer.add(b"p", bytes(RECENT_SIZE_MAX - 1))
    assert not turn_buffer.add(b"", b"x")


def test_nothing_is_added_to_what_is_lent() -> None:
    """V9: the lender takes it back."""
    recent, turn_buffer = RecentEntries(), TurnBuffer()
    recent.lend(at(1), at(3), (b"one", b"four"))
    assert (recent.start, recent.end, recent.size, recent.sizes) == (1, 3, 7, [3, 4])
    add(recent, turn_buffer, 3, 4, b"mine")
    assert (recent.start, recent.end, recent.copy(), recent.is_lent) == (3, 4, [b"pmine"], False)


class Reads:
    """How often a log was read in order to send from it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        original = EntryReader.read

        def read(reader: EntryReader, *args: object, **named: object) -> object:
            self.count += 1
            return original(reader, *args, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(EntryReader, "read", read)


@looped
async def test_the_log_is_not_read_for_what_has_just_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V9, V10: broker.replication.R2; not by the head nor by those after it; bytes are the same."""
    rig = Rig(tmp_path)
    a, *_ = rig.nodes(4)
    rig.configure(serving=[1, 2, 3, 4])
    await rig.leads(a)
    await rig.settled()
    reads = Reads(monkeypatch)
    for turn in range(10):
        await asyncio.gather(*[a.append(b"%d %d" % (turn, number)) for number in range(5)])
    assert reads.count == 0
    await rig.settled()
    rig.check_identical()


@looped
async def test_what_memory_does_not_hold_comes_from_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V10: broker.replication.M2, broker.replication.D4; more than a turn holds, a slow peer."""
    for module in ("recent_entries", "replication"):
        monkeypatch.setattr(f"quipu.broker.replication.{module}.RECENT_SIZE_MAX", 1000)
    rig = Rig(tmp_path, config=LogConfig(segment_bytes=2000))
    a, b, *_ = rig.nodes(3)
    rig.configure(serving=[1, 2, 3])
    await rig.leads(a)
    await rig.settled()
    reads = Reads(monkeypatch)
    for turn in range(20):
        if turn == 7:
            a.peers.backlog_max = 500
        if turn == 14:
            rig.net.cut(2, 3)
        futures = [a.append(b"%d" % turn * 150) for _ in range(1 + turn % 8)]
        if turn == 14:
            await rig.turns(20)
            rig.net.heal()
        await asyncio.gather(*futures)
    assert reads.count > 0
    await rig.settled()
    rig.check_identical()
    assert len(b.files()) > 5


@looped
async def test_what_was_cut_is_never_sent(tmp_path: Path) -> None:
    """V14: a head appends, and in the same turn hears that another one leads without it."""
    rig = Rig(tmp_path)
    a, b, c = rig.nodes(3)
    rig.configure(serving=[1, 2, 3])
    await rig.leads(a)
    await rig.settled()
    await a.produce(b"kept")
    await rig.settled()
    rig.net.cut(1, 2)
    rig.net.cut(1, 3)
    lost = a.append(b"lost")
    rig.configure(serving=[2, 3], offline=[1], to=[2, 3])
    await rig.leads(b)
    await b.produce(b"new")
    rig.configure(serving=[2, 3], syncing=[1], new_epoch=False)
    rig.net.heal()
    await rig.until(lambda: rig.in_sync)
    with pytest.raises(NotLeader):
        await lost
    rig.configure(serving=[2, 3, 1])
    await rig.leads(b)
    await rig.settled()
    assert a.values() == b.values() == c.values() == [b"kept", b"new"]
    rig.check_identical()


@looped
async def test_a_cut_ends_what_is_held(tmp_path: Path) -> None:
    """V14: broker.replication.M1; offsets are used again after a cut, by other batches."""
    rig = Rig(tmp_path)
    a, _ = rig.nodes(2)
    rig.configure(serving=[1, 2])
    await rig.leads(a)
    await rig.settled()
    chain = a.replication.find(a.partition)
    assert chain is not None
    future = a.append(b"x")
    end = a.log_end
    assert chain._recent.end == end
    chain._carry_out(TruncateTo(LogOffset(end - 1)))
    assert not chain._recent.buffers
    future.cancel()

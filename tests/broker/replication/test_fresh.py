"""Batches that are sent on from memory: what is sent is what the log has, and no more is held."""

import asyncio
from pathlib import Path

import pytest

from quipu.broker.partition import NotLeader
from quipu.broker.replication.fresh import FRESH_SIZE_MAX, Copies, Fresh
from quipu.chain.effects import CutTo
from quipu.model.ids import LogOffset
from quipu.storage.config import LogConfig
from quipu.storage.entries import EntryReader
from tests.broker.replication.rig import Rig
from tests.looped import looped


def at(number: int) -> LogOffset:
    return LogOffset(number)


def add(fresh: Fresh, copies: Copies, start: int, end: int, batch: bytes) -> None:
    copied_end = copies.add(b"p", batch)
    assert copied_end
    fresh.copied(at(start), at(end), copies, copied_end, 1 + len(batch))


def test_batches_that_follow_each_other_make_one_entry() -> None:
    """V9: and those before a gap are dropped, whatever made it."""
    fresh, copies = Fresh(), Copies()
    add(fresh, copies, 5, 6, b"one")
    add(fresh, copies, 6, 8, b"two")
    assert (fresh.start, fresh.end, fresh.size, fresh.sizes) == (5, 8, 8, [8])
    assert [bytes(buffer) for buffer in fresh.buffers] == [b"poneptwo"]
    add(fresh, copies, 9, 10, b"three")  # a checkpoint lies between
    assert (fresh.start, fresh.end, fresh.sizes) == (9, 10, [6])
    assert fresh.own() == [b"pthree"]


def test_partitions_share_the_place_for_copies() -> None:
    """V9: each sends its own, however they take turns; and there is an end to it."""
    one, other, copies = Fresh(), Fresh(), Copies()
    for number in range(4):
        add(one, copies, number, number + 1, b"a%d" % number)
        if number % 2:
            add(other, copies, number, number + 1, b"b%d" % number)
    assert one.own() == [b"pa0pa1pa2pa3"]
    assert other.own() == [b"pb3"]
    assert not copies.add(b"p", bytes(FRESH_SIZE_MAX))
    copies.clear()
    assert copies.add(b"p", bytes(FRESH_SIZE_MAX - 1))
    assert not copies.add(b"", b"x")


def test_nothing_is_added_to_what_is_lent() -> None:
    """V9: the lender takes it back."""
    fresh, copies = Fresh(), Copies()
    fresh.lend(at(1), at(3), (b"one", b"four"))
    assert (fresh.start, fresh.end, fresh.size, fresh.sizes) == (1, 3, 7, [3, 4])
    add(fresh, copies, 3, 4, b"mine")
    assert (fresh.start, fresh.end, fresh.own(), fresh.is_lent) == (3, 4, [b"pmine"], False)


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
    """V9, V10: neither by the head nor by those after it; all have the same bytes."""
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
    """V10: more than a turn may hold, segments that end in between, a peer that lags."""
    for module in ("fresh", "replication"):
        monkeypatch.setattr(f"quipu.broker.replication.{module}.FRESH_SIZE_MAX", 1000)
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
    rig.configure(serving=[2, 3], offline=[1], tell=[2, 3])
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
    """V14: offsets are used again after a cut, by other batches."""
    rig = Rig(tmp_path)
    a, _ = rig.nodes(2)
    rig.configure(serving=[1, 2])
    await rig.leads(a)
    await rig.settled()
    chain = a.replication.find(a.partition)
    assert chain is not None
    future = a.append(b"x")
    end = a.log_end
    assert chain._fresh.end == end
    chain._carry_out(CutTo(LogOffset(end - 1)))
    assert not chain._fresh.buffers
    future.cancel()

"""An idempotent producer with several batches on their way, while the chain changes under it."""

import asyncio
from pathlib import Path

import pytest

from quipu.broker import error_codes
from quipu.broker.partitions.partition_errors import NotLeader
from quipu.broker.partitions.sequence_guard import IN_FLIGHT_SECONDS_MAX
from quipu.model.errors import Code, QuipuError
from quipu.model.partition_log import ACKS_ALL
from quipu.runtime.disks.disk import DiskFull
from quipu.wire.record_batch import Record, encode_batch
from tests.broker.replication.rig import ANode, Rig, base_offset
from tests.looped import looped

MINUTE_MS = int(IN_FLIGHT_SECONDS_MAX * 1000)


def send(
    node: ANode, sequence: int, *, producer: int = 7, epoch: int = 0
) -> "asyncio.Future[int]":
    """One record, which has its sequence for a value; the future gives its offset."""
    batch = encode_batch([Record(None, b"%d" % sequence, (), 1)], producer_id=producer,
                         producer_epoch=epoch, base_sequence=sequence)
    return base_offset(node.partition.append(
        memoryview(batch), node.rig.clock.now_ms(), ACKS_ALL, 3000))


def code_of(node: ANode, sequence: int, *, producer: int = 7, epoch: int = 0) -> Code:
    with pytest.raises(QuipuError) as refused:
        send(node, sequence, producer=producer, epoch=epoch)
    return error_codes.code_of(refused.value)


async def a_chain(rig: Rig, count: int) -> list[ANode]:
    nodes = rig.nodes(count)
    rig.configure(serving=range(1, count + 1))
    await rig.leads(nodes[0])
    await rig.settled()
    return nodes


async def window_again(rig: Rig, head: ANode, count: int) -> list[int]:
    """All of the window, in order and with the same sequences, as a client sends it again."""
    futures = [send(head, sequence) for sequence in range(count)]
    await rig.settled(*(node for node in rig.members.values() if node.partition.is_serving))
    return [await asyncio.wait_for(future, 5) for future in futures]


@looped
async def test_a_batch_behind_one_refused_while_the_chain_changed_is_sent_again(
    tmp_path: Path,
) -> None:
    """K2, V15: broker.partitions.P5; the head pauses at every change; what comes right after the
    pause is no gap.
    """
    rig = Rig(tmp_path)
    a, b, _ = await a_chain(rig, 3)
    rig.net.cut(2, 3)
    first = send(a, 0)
    rig.configure(serving=[1, 2], offline=[3])
    assert not a.partition.is_leader
    assert code_of(a, 1) == Code.NOT_LEADER_OR_FOLLOWER  # in the pause
    await rig.leads(a)
    assert code_of(a, 2) == Code.NOT_LEADER_OR_FOLLOWER  # and not OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await asyncio.wait_for(first, 5) == 0
    assert await window_again(rig, a, 3) == [0, 1, 2]
    assert b.values() == [b"0", b"1", b"2"]


@looped
async def test_the_first_batch_of_a_producer_may_be_the_one_that_was_refused(
    tmp_path: Path,
) -> None:
    """K2: the log does not know the producer yet; its second batch does not come first."""
    rig = Rig(tmp_path)
    a, b = await a_chain(rig, 2)
    rig.configure(serving=[1, 2])
    assert code_of(a, 0) == Code.NOT_LEADER_OR_FOLLOWER
    await rig.leads(a)
    for sequence in (1, 2):
        assert code_of(a, sequence) == Code.NOT_LEADER_OR_FOLLOWER
    assert code_of(a, 1, epoch=3) == Code.NOT_LEADER_OR_FOLLOWER
    assert await window_again(rig, a, 3) == [0, 1, 2]
    assert b.values() == [b"0", b"1", b"2"]


@looped
async def test_a_batch_behind_one_for_which_nodes_were_missing_is_sent_again(
    tmp_path: Path,
) -> None:
    """K2: the first one waits and its outcome is unknown, the second one is refused."""
    rig = Rig(tmp_path, min_insync=0)
    a, *_ = await a_chain(rig, 3)
    rig.net.cut(2, 3)
    first = send(a, 0)
    rig.configure(serving=[1, 2], offline=[3], new_epoch=False)
    with pytest.raises(QuipuError) as open_fate:
        await asyncio.wait_for(first, 5)
    assert open_fate.value.code == Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert code_of(a, 1) == Code.NOT_ENOUGH_REPLICAS
    rig.net.heal()
    rig.configure(serving=[1, 2], syncing=[3], new_epoch=False)
    await rig.until(lambda: (3, rig.version) in rig.in_sync)
    rig.configure(serving=[1, 2, 3])
    await rig.leads(a)
    assert code_of(a, 2) == Code.NOT_LEADER_OR_FOLLOWER
    assert await window_again(rig, a, 3) == [0, 1, 2]


@looped
async def test_a_batch_behind_one_that_found_no_room_is_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K2: on a full disk a smaller batch may still fit."""
    rig = Rig(tmp_path)
    a, *_ = await a_chain(rig, 2)
    rig.clock.advance_ms(MINUTE_MS)  # since it leads
    assert await asyncio.wait_for(send(a, 0), 5) == 0
    with monkeypatch.context() as patch:
        def full(*_args: object, **_named: object) -> None:
            raise DiskFull("no space left")

        patch.setattr(a.partition.log, "append", full)
        assert code_of(a, 1) == Code.KAFKA_STORAGE_ERROR
    assert code_of(a, 2) == Code.NOT_LEADER_OR_FOLLOWER
    assert await window_again(rig, a, 3) == [0, 1, 2]


@looped
async def test_a_batch_behind_one_refused_without_a_lease_is_sent_again(tmp_path: Path) -> None:
    """K2, V15: the lease is renewed in the same epoch, and the head goes on."""
    rig = Rig(tmp_path)
    a, *_ = await a_chain(rig, 2)
    rig.clock.advance_ms(MINUTE_MS)
    a.leased.lease_until = rig.clock.monotonic()
    rig.configure(serving=[1, 2], new_epoch=False)  # the partition hears that there is a lease
    assert code_of(a, 0) == Code.NOT_LEADER_OR_FOLLOWER
    a.leased.lease_until = rig.clock.monotonic() + 10
    assert code_of(a, 1) == Code.NOT_LEADER_OR_FOLLOWER
    assert await window_again(rig, a, 2) == [0, 1]


@looped
async def test_a_batch_behind_one_that_timed_out_follows_it(tmp_path: Path) -> None:
    """K2: the first is in the log, whatever response its producer got; its retry succeeds when it
    is committed, and not before.
    """
    rig = Rig(tmp_path)
    a, b = await a_chain(rig, 2)
    rig.net.cut(1, 2)
    first = send(a, 0)
    await rig.pass_time(31)
    with pytest.raises(QuipuError) as late:
        await first
    assert late.value.code == Code.REQUEST_TIMED_OUT
    again, second = send(a, 0), send(a, 1)
    await rig.pass_time(5)
    assert (again.done(), second.done()) == (False, False)
    rig.net.heal()
    await rig.settled()
    assert (await again, await second) == (0, 1)
    assert b.values() == [b"0", b"1"]


@looped
async def test_a_batch_is_recognised_though_more_than_a_window_followed(tmp_path: Path) -> None:
    """K2: refused by a pause between it and those behind it, it comes again with new ones; what
    the log does not hold is out of order as ever.
    """
    rig = Rig(tmp_path)
    a, b = await a_chain(rig, 2)
    for sequence in range(4):
        await asyncio.wait_for(send(a, sequence), 5)
    rig.configure(serving=[1, 2])
    assert code_of(a, 0) == Code.NOT_LEADER_OR_FOLLOWER
    await rig.leads(a)
    for sequence in range(4, 8):
        await asyncio.wait_for(send(a, sequence), 5)
    for sequence in range(8):
        assert await asyncio.wait_for(send(a, sequence), 5) == sequence
    assert code_of(a, (1 << 31) - 1) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    rig.clock.advance_ms(MINUTE_MS)
    await asyncio.wait_for(send(a, 8), 5)  # in order: whatever was refused was long ago
    assert code_of(a, 0) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert b.values() == [b"%d" % sequence for sequence in range(9)]


@looped
async def test_a_new_head_knows_what_the_old_one_had_sent_on(tmp_path: Path) -> None:
    """K2, V14: the retry of a batch that nobody acknowledged is recognised, also if it waits."""
    rig = Rig(tmp_path)
    a, b, c = await a_chain(rig, 3)
    rig.net.cut(2, 3)
    lost = send(a, 0)
    await rig.until(lambda: b.log_end == a.log_end)
    a.crash()
    lost.cancel()
    rig.net.heal()
    rig.configure(serving=[2, 3], offline=[1], to=[2, 3])
    await rig.leads(b)
    assert code_of(b, 3) == Code.NOT_LEADER_OR_FOLLOWER
    futures = [send(b, sequence) for sequence in range(3)]
    assert [await asyncio.wait_for(future, 5) for future in futures] == [0, 1, 2]
    await rig.settled(b, c)
    assert c.values() == [b"0", b"1", b"2"]


@looped
async def test_a_gap_that_nobody_caused_is_the_producers_own(tmp_path: Path) -> None:
    """K2: Kafka's errors, once nothing refused can still arrive: to a producer that has begun
    again in order at once, to others after a minute.
    """
    rig = Rig(tmp_path)
    a, *_ = await a_chain(rig, 2)
    assert await asyncio.wait_for(send(a, 0), 5) == 0
    assert code_of(a, 2) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    rig.configure(serving=[1, 2])
    await rig.leads(a)
    assert code_of(a, 2) == Code.NOT_LEADER_OR_FOLLOWER
    assert await asyncio.wait_for(send(a, 0), 5) == 0  # it sends again, in order
    assert code_of(a, 2) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(a, 41, producer=8) == Code.NOT_LEADER_OR_FOLLOWER
    rig.clock.advance_ms(MINUTE_MS)
    assert await asyncio.wait_for(send(a, 41, producer=8), 5) == 1  # its state has expired


@looped
async def test_a_node_alone_refuses_a_gap_at_once(tmp_path: Path) -> None:
    """K2: there is no pause, and nobody to wait for."""
    rig = Rig(tmp_path)
    a, = await a_chain(rig, 1)
    send(a, 0)
    assert code_of(a, 2) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER


# --- waits that end


@looped
async def test_who_waits_is_not_told_yes_for_what_another_wrote(tmp_path: Path) -> None:
    """V12, V14: the head comes back as head and takes over another log; the record at the offset
    that another waits for is not its own.
    """
    rig = Rig(tmp_path)
    a, b = await a_chain(rig, 2)
    rig.net.cut(1, 2)
    mine = a.append(b"mine")
    rig.configure(serving=[2], offline=[1], to=[2])
    await rig.leads(b)
    assert await b.produce(b"another's") == 0
    rig.net.heal()
    rig.configure(serving=[1, 2])
    with pytest.raises(NotLeader):
        await asyncio.wait_for(mine, 5)
    await rig.leads(a)
    await rig.settled()
    assert a.values() == b.values() == [b"another's"]
    assert await a.produce(b"mine") == 1


@looped
async def test_who_waits_at_a_node_without_a_lease_is_sent_away(tmp_path: Path) -> None:
    """V15: others may lead by now; the producer must find them before its patience is over."""
    rig = Rig(tmp_path)
    a, *_ = await a_chain(rig, 2)
    rig.net.cut(1, 2)
    a.leased.lease_until = rig.clock.monotonic() + 1
    waiting = a.append(b"x")
    await rig.pass_time(9)
    assert not waiting.done()
    await rig.pass_time(2)
    with pytest.raises(NotLeader):
        await asyncio.wait_for(waiting, 1)

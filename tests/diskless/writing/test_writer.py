"""The writer: what is answered is stored and committed, once and in order."""

import asyncio

import pytest

from quipu.diskless.control_plane.interface import BatchOutcome
from quipu.diskless.objects.names import RECEIPTS_PREFIX, ObjectName, find_name
from quipu.diskless.objects.reading import read_footer
from quipu.diskless.objects.receipts import NOT_IN_USE, Receipt
from quipu.diskless.values import LogKey
from quipu.diskless.writing import receipts as unsaved
from quipu.diskless.writing.limits import WriterLimits
from quipu.diskless.writing.receipts import UnsavedReceipts
from quipu.model.errors import Code, ErrorKind, QuipuError
from quipu.model.ids import NodeId
from quipu.wire.record_batch import parse_header
from tests.diskless.faults import Fault
from tests.diskless.nodes import LOG, TOPIC, Node, Outcome, encoded, memory_world
from tests.looped import timeless

SOON = WriterLimits(flush_interval_ms=10, upload_ms_max=5000, commit_ms_max=5000,
                    attempt_ms_max=1000)


def offset_of(outcome: Outcome) -> int:
    assert isinstance(outcome, BatchOutcome), outcome
    assert outcome.code is Code.NONE
    return outcome.base_offset


def code_of(outcome: Outcome) -> Code:
    return outcome.code


async def receipts(node: Node) -> dict[int, Receipt]:
    """The receipts in all objects, by the sequence of the object that they are for."""
    found: dict[int, Receipt] = {}
    for info in (await node.store.list("")).objects:
        for receipt in (await read_footer(node.store, info.key, info.size)).receipts:
            assert found.setdefault(receipt.name.sequence, receipt) == receipt
    return found


@timeless
async def test_batches_of_many_logs_become_one_object() -> None:
    """D1: one put and one commit; offsets in the order of arrival, each log its own."""
    node = await memory_world().node()
    answers = [node.append(f"v{number}", "w", log=LogKey(TOPIC, number % 3))
               for number in range(9)]
    found = [offset_of(answer) for answer in await asyncio.gather(*answers)]
    assert found == [0, 0, 0, 2, 2, 2, 4, 4, 4]
    assert (node.store.calls["put"], len(node.plane.commits)) == (1, 1)
    assert await node.values(LogKey(TOPIC, 1)) == ["v1", "w", "v4", "w", "v7", "w"]
    await node.close()


@timeless
async def test_nothing_is_answered_before_object_and_commit() -> None:
    """D1, D6, diskless.W3: not while the object is being stored, nor before its commit."""
    node = await memory_world().node(limits=SOON)
    node.store.put_seconds[0] = 0.8
    node.plane.commit_seconds = 0.8
    answer = node.append("a")
    await asyncio.sleep(0.7)
    assert not node.plane.commits
    await asyncio.sleep(0.5)
    assert node.plane.commits
    assert not answer.done()
    assert offset_of(await answer) == 0
    await node.close()


@timeless
async def test_uploads_overlap_and_commits_keep_the_order() -> None:
    """D6, diskless.W3: a later object that is stored first waits for those before it."""
    node = await memory_world().node(limits=SOON._replace(uploads_max=3))
    node.store.put_seconds = {0: 0.9, 1: 0.6, 2: 0.3, 3: 0.1}
    answers = []
    for number in range(5):
        answers.append(node.append(f"v{number}"))
        await asyncio.sleep(0.02)
    assert [offset_of(answer) for answer in await asyncio.gather(*answers)] == [0, 1, 2, 3, 4]
    sequences = [name.sequence for name in map(find_name, node.plane.commits) if name is not None]
    assert sequences == sorted(sequences)
    assert node.store.putting_most == 3
    assert await node.values() == [f"v{number}" for number in range(5)]
    await node.close()


@timeless
async def test_while_all_uploads_are_busy_the_buffer_grows() -> None:
    """D6: objects are not made only to wait."""
    node = await memory_world().node(limits=SOON._replace(uploads_max=1))
    node.store.put_seconds[0] = 0.9
    answers = []
    for number in range(40):
        answers.append(node.append(f"v{number}"))
        await asyncio.sleep(0.02)
    await asyncio.gather(*answers)
    assert node.store.calls["put"] == 2
    await node.close()


@timeless
async def test_a_put_that_fails_is_repeated() -> None:
    """D6: refused, without an answer, and with a lost one; the object is there once."""
    node = await memory_world().node(limits=SOON)
    node.store.put_faults.plan(Fault.REFUSE, Fault.STALL, Fault.LOSE)
    assert offset_of(await node.append("a")) == 0
    assert node.writer.stats.put_retries == 3
    assert len((await node.store.list("")).objects) == 1
    assert await node.values() == ["a"]
    await node.close()


@timeless
async def test_another_object_under_the_key_is_not_taken_for_ours() -> None:
    """D6, diskless.W5: it has another size."""
    node = await memory_world().node(limits=SOON)
    first = await node.append("a")
    assert offset_of(first) == 0
    name = find_name(node.plane.commits[0])
    assert name is not None
    await node.store._store.put(name._replace(sequence=1).key, [b"strange"])
    failed = await node.append("b")
    assert code_of(failed) == Code.KAFKA_STORAGE_ERROR
    assert len(node.plane.commits) == 1
    await node.close()


@pytest.mark.parametrize("fault", [Fault.REFUSE, Fault.STALL, Fault.DENY])
def test_a_store_that_stays_away_fails_batches_in_bounded_time(fault: Fault) -> None:
    """D6: with an error that clients retry; the node goes on when the store is back."""

    @timeless
    async def story() -> None:
        node = await memory_world().node(limits=SOON)
        node.store.put_faults.plan(then=fault)
        began = asyncio.get_running_loop().time()
        failed = await node.append("a")
        assert asyncio.get_running_loop().time() - began < 7
        assert isinstance(failed, QuipuError)
        assert (failed.kind, failed.code) == (ErrorKind.RETRY, Code.KAFKA_STORAGE_ERROR)
        assert not node.plane.commits
        node.store.put_faults.plan(then=Fault.NONE)
        assert offset_of(await node.append("b")) == 0
        await node.close()
        assert (await receipts(node))[0].offsets == (NOT_IN_USE,)

    story()


@timeless
async def test_a_commit_whose_answer_is_lost_is_repeated() -> None:
    """D3, diskless.W6: with the same key; the batches are there once, at the first offsets."""
    node = await memory_world().node(limits=SOON)
    node.plane.faults.plan(Fault.LOSE, Fault.REFUSE, Fault.LOSE, Fault.STALL)
    assert offset_of(await node.append("a")) == 0
    assert len(node.plane.commits) == 5
    assert len(set(node.plane.commits)) == 1
    assert await node.values() == ["a"]
    await node.close()


@timeless
async def test_an_outcome_that_stays_unknown_is_said_to_be() -> None:
    """D6, diskless.W6, diskless.W7: and there is no receipt for it; the object is left."""
    node = await memory_world().node(limits=SOON)
    node.plane.faults.plan(Fault.LOSE, then=Fault.REFUSE)
    failed = await node.append("a")
    assert code_of(failed) == Code.REQUEST_TIMED_OUT
    node.plane.faults.plan(then=Fault.NONE)
    assert offset_of(await node.append("b")) == 1
    assert await node.values() == ["a", "b"]
    await node.close()
    assert list(await receipts(node)) == [1]


@timeless
async def test_a_control_plane_that_was_never_reached_has_committed_nothing() -> None:
    """D6, diskless.W7: an error that clients retry, and a receipt that says so."""
    node = await memory_world().node(limits=SOON)
    node.plane.faults.plan(then=Fault.REFUSE)
    failed = await node.append("a")
    assert code_of(failed) == Code.KAFKA_STORAGE_ERROR
    await node.close()
    assert (await receipts(node))[0].offsets == (NOT_IN_USE,)


@timeless
async def test_errors_belong_to_batches() -> None:
    """D6: one log does not exist, one batch is out of order; the others are committed."""
    node = await memory_world().node()
    unknown = node.append("a", log=LogKey(TOPIC, 99))
    fine = node.append("b")
    first = node.append("c", producer=(5, 0, 0))
    gap = node.append("d", producer=(5, 0, 7))
    copy = node.append("c", producer=(5, 0, 0))
    assert code_of(await unknown) == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert (offset_of(await fine), offset_of(await first), offset_of(await copy)) == (0, 1, 1)
    assert code_of(await gap) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await node.values() == ["b", "c"]
    stats = node.writer.stats
    assert (stats.refused_batches, stats.duplicate_batches) == (2, 1)
    await node.close()


@timeless
async def test_receipts_are_in_the_next_object() -> None:
    """D4, D37, diskless.W7: every committed object has one; the last ones in an object alone."""
    node = await memory_world().node(limits=SOON)
    await node.append("a", "b")
    node.store.put_faults.plan(Fault.REFUSE)
    await node.append("c")
    objects = (await node.store.list("")).objects
    assert len(objects) == 2
    assert not any(info.key.startswith(RECEIPTS_PREFIX) for info in objects)
    await asyncio.sleep(1.5)  # without a new batch
    found = await receipts(node)
    assert {sequence: receipt.offsets for sequence, receipt in found.items()} == {0: (0,), 1: (2,)}
    await asyncio.sleep(5)
    assert node.writer.stats.receipt_objects == 1
    await node.append("d")
    await node.close()
    assert (await receipts(node))[3].offsets == (3,)


@timeless
async def test_receipts_of_an_object_that_was_not_stored_go_into_another() -> None:
    """D37, diskless.W7: none is lost."""
    node = await memory_world().node(limits=SOON)
    await node.append("a")
    node.store.put_faults.plan(then=Fault.REFUSE)
    await node.append("b")
    node.store.put_faults.plan(then=Fault.NONE)
    await node.append("c")
    await node.close()
    assert {number: each.offsets for number, each in (await receipts(node)).items()} == {
        0: (0,), 1: (NOT_IN_USE,), 2: (1,)}


def test_receipts_of_failed_objects_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """D6, diskless.W7: those of committed ones are held nevertheless."""
    monkeypatch.setattr(unsaved, "NUMBERS_MAX", 10)
    held = UnsavedReceipts()
    names = [ObjectName(NodeId(1), TOPIC, number) for number in range(5)]
    held.add_failed(names[0], 6)
    held.add_failed(names[1], 6)
    held.add(Receipt(names[2], (0,) * 6), ())
    held.add_failed(names[3], 1)
    taken = held.take()
    assert [receipt.name for receipt in taken.receipts] == [names[0], names[2]]
    assert not held
    held.add_failed(names[3], 6)
    held.give_back(taken)
    held.add_failed(names[4], 1)
    assert [receipt.name for receipt in held.take().receipts] == [names[0], names[2], names[3]]


@timeless
async def test_a_stalled_store_holds_back_the_clients() -> None:
    """D6, diskless.W8: the writer is full at its bound, refuses beyond it, and recovers."""
    limits = SOON._replace(buffer_bytes=10_000, overflow_bytes=5_000, flush_bytes=4_000)
    node = await memory_world().node(limits=limits)
    node.store.put_faults.plan(then=Fault.STALL)
    answers, room = [], []
    while not node.writer.is_full:
        answers.append(node.append("x" * 900))
    node.writer.when_room(lambda: room.append(node.writer.is_full))
    answers += [node.append("x" * 900) for _ in range(4)]
    with pytest.raises(QuipuError) as refused:
        node.append("x" * 900)
    assert (refused.value.code, refused.value.kind) == (Code.KAFKA_STORAGE_ERROR, ErrorKind.RETRY)
    assert 14_000 < node.writer.stats.buffered_now <= 15_000
    assert not room
    node.store.put_faults.plan(then=Fault.NONE)
    outcomes = await asyncio.gather(*answers)
    assert len(outcomes) == len(answers)
    assert room == [False]
    assert node.writer.stats.buffered_now == 0
    node.writer.when_room(lambda: room.append(True))
    assert room == [False, True]
    await node.close()


@timeless
async def test_close_writes_and_answers_everything() -> None:
    """D6: then nothing is accepted; clients are told to go elsewhere."""
    node = await memory_world().node(limits=WriterLimits(flush_interval_ms=60_000))
    answers = [node.append(f"v{number}") for number in range(3)]
    await node.writer.close()
    assert [offset_of(answer.result()) for answer in answers] == [0, 1, 2]
    with pytest.raises(QuipuError) as refused:
        node.append("late")
    assert refused.value.code == Code.NOT_LEADER_OR_FOLLOWER
    assert node.writer.stats.receipt_objects == 1
    await node.reader.close()


@timeless
async def test_an_answer_that_raises_does_not_stop_the_others() -> None:
    """D6, diskless.W3: a bug in one request is not that of its neighbours."""
    node = await memory_world().node()
    batch = encoded("a")

    def fails(_: Outcome) -> None:
        raise ValueError

    node.writer.append(LOG, batch, parse_header(batch), fails)
    assert offset_of(await node.append("b")) == 1
    await node.close()

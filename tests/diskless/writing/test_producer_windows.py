"""Idempotent producers with several batches under way: exactly once and in order, over failures.

The producer here has librdkafka's rules: up to five batches without an answer; after an error that
it retries, it waits for all answers and sends what was not accepted again, in order and with the
same sequences.  OUT_OF_ORDER_SEQUENCE_NUMBER would make it begin a new epoch and send some twice.
"""

import asyncio
import random
from collections import deque

import pytest

from quipu.diskless.control_plane.interface import BatchOutcome
from quipu.diskless.values import LogKey
from quipu.diskless.writing.limits import WriterLimits
from quipu.model.errors import Code, QuipuError
from quipu.wire.record_batch import parse_header
from tests.diskless.faults import Fault
from tests.diskless.nodes import LOG, TOPIC, Node, Outcome, encoded, memory_world
from tests.looped import timeless

LIMITS = WriterLimits(flush_interval_ms=10, upload_ms_max=300, commit_ms_max=300,
                      attempt_ms_max=100, buffer_bytes=2000, overflow_bytes=1000, uploads_max=3)
WINDOW = 5


class WindowedProducer:
    """Sends values one by one, `WINDOW` of them at a time."""

    def __init__(self, node: Node, producer_id: int, values: list[str], *, waits: bool) -> None:
        self._node = node
        self._id = producer_id
        self._values = values
        self._waits = waits  # for all answers before it sends again, as librdkafka does
        self.offsets: dict[int, int] = {}

    async def run(self, rng: random.Random) -> None:
        to_send = deque(range(len(self._values)))
        in_flight: dict[int, asyncio.Future[Outcome]] = {}
        while to_send or in_flight:
            while to_send and len(in_flight) < WINDOW:
                number = to_send.popleft()
                in_flight[number] = self._send(number)
                await asyncio.sleep(rng.random() * 0.01)
            await asyncio.wait(in_flight.values(), return_when=(
                asyncio.FIRST_COMPLETED))
            again = self._answered(in_flight)
            if again and self._waits:
                if in_flight:
                    await asyncio.wait(in_flight.values())
                again += self._answered(in_flight)
            to_send.extendleft(sorted(again, reverse=True))
            to_send = deque(sorted(to_send))
            if again:
                await asyncio.sleep(0.05)

    def _answered(self, in_flight: dict[int, "asyncio.Future[Outcome]"]) -> list[int]:
        """Take the answers that have come; those that must be sent again."""
        again = []
        for number, answer in list(in_flight.items()):
            if answer.done():
                del in_flight[number]
                outcome = answer.result()
                assert outcome.code not in (
                    Code.OUT_OF_ORDER_SEQUENCE_NUMBER, Code.INVALID_PRODUCER_EPOCH), outcome
                if isinstance(outcome, BatchOutcome) and outcome.code is Code.NONE:
                    self.offsets[number] = outcome.base_offset
                else:
                    again.append(number)
        return again

    def _send(self, number: int) -> "asyncio.Future[Outcome]":
        try:
            return self._node.append(self._values[number], producer=(self._id, 0, number))
        except QuipuError as error:
            refused: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
            refused.set_result(error)
            return refused


@pytest.mark.parametrize("waits", [True, False], ids=["waiting", "eager"])
@pytest.mark.parametrize("seed", range(12))
def test_acknowledged_once_and_in_order_whatever_fails(seed: int, *, waits: bool) -> None:
    """D3, D6, diskless.W4: store and control plane refuse, stall and lose answers."""

    @timeless
    async def story() -> None:
        rng = random.Random(seed)
        node = await memory_world().node(limits=LIMITS)
        for faults in (node.store.put_faults, node.plane.faults):
            kinds = [Fault.NONE] * 3 + [Fault.REFUSE, Fault.LOSE, Fault.STALL]
            faults.plan(*(fault for _ in range(10)
                          for fault in [rng.choice(kinds)] * rng.randint(1, 6)))
        producers = [
            WindowedProducer(node, number + 1, [f"p{number}-{each}" for each in range(30)],
                             waits=waits)
            for number in range(3)]
        await asyncio.gather(*(producer.run(rng) for producer in producers))
        found = await node.values()
        for number, producer in enumerate(producers):
            own = [value for value in found if value.startswith(f"p{number}-")]
            assert own == [f"p{number}-{each}" for each in range(30)]
            for each, offset in producer.offsets.items():
                assert found[offset] == f"p{number}-{each}"
        await node.close()

    story()


@timeless
async def test_what_was_under_way_after_a_failed_batch_fails_as_well() -> None:
    """D3, diskless.W4: in objects that are stored, and in the buffer; other producers do not."""
    node = await memory_world().node(limits=LIMITS._replace(
        buffer_bytes=1 << 20, attempt_ms_max=1000))
    node.store.put_faults.plan(Fault.DENY)
    node.store.put_seconds[0] = 0.2
    first = node.append("a", producer=(1, 0, 0))
    await asyncio.sleep(0.02)
    second = node.append("b", producer=(1, 0, 1))
    other = node.append("c", producer=(2, 0, 0))
    elsewhere = node.append("d", producer=(1, 0, 0), log=LogKey(TOPIC, 1))
    await asyncio.sleep(0.175)
    third = node.append("e", producer=(1, 0, 2))  # in the buffer when the first one fails
    outcomes = await asyncio.gather(first, second, third, other, elsewhere)
    assert [outcome.code for outcome in outcomes] == [
        Code.KAFKA_STORAGE_ERROR, Code.NOT_LEADER_OR_FOLLOWER, Code.NOT_LEADER_OR_FOLLOWER,
        Code.NONE, Code.NONE]
    with pytest.raises(QuipuError) as refused:  # it was sent before the failure was known
        node.append("f", producer=(1, 0, 3))
    assert refused.value.code == Code.NOT_LEADER_OR_FOLLOWER
    again = [node.append(value, producer=(1, 0, number)) for number, value in enumerate("abef")]
    assert [outcome.code for outcome in await asyncio.gather(*again)] == [Code.NONE] * 4
    assert await node.values() == ["c", "a", "b", "e", "f"]
    await node.close()


@timeless
async def test_a_batch_refused_before_the_writer_saw_it_is_awaited() -> None:
    """D3, diskless.W4: for want of room, or by whoever checks batches."""
    node = await memory_world().node(limits=LIMITS._replace(buffer_bytes=0, overflow_bytes=200))
    with pytest.raises(QuipuError):
        node.append("x" * 500, producer=(1, 0, 0))
    with pytest.raises(QuipuError) as refused:
        node.append("b", producer=(1, 0, 1))
    assert refused.value.code == Code.NOT_LEADER_OR_FOLLOWER
    assert (await node.append("a", producer=(1, 0, 0))).code == Code.NONE
    node.writer.note_refused(LOG, parse_header(encoded("c", producer=(1, 0, 1))))
    with pytest.raises(QuipuError):
        node.append("d", producer=(1, 0, 2))
    await node.close()

"""Produce of many batches, or many bytes: carried out in turns with everybody else.

The first batch of a partition may cost a millisecond, for its log is opened; ten thousand of them
would hold the loop for seconds.  So such a request waits for its turn as the bytes that came, its
batches are appended one by one, and its answer is made in steps.

Invariants
    L1  the requests behind it on its connection wait until its last batch is appended, so batches
        of one connection are appended in the order in which they came
    L2  each batch is appended, and its wait begun, in one go, by whoever leads its partition then:
        a partition that is deleted, or led by another node, between two turns is an error of its
        own
    L3  a client that goes meanwhile changes nothing: what it asked for is carried out
    L4  the bytes of all such requests are at most queued.max.request.bytes

Not here: what is done with one batch (producing.py), whose turn it is (runtime/turns.py).
"""

import asyncio
from collections.abc import Generator
from functools import partial

from quipu.broker.context import Broker
from quipu.broker.producing import (
    NOT_LEADER,
    VERSION_LEADERS,
    Result,
    append,
    by_topic,
    lost,
    why_refused,
)
from quipu.broker.record_checks import Looks, reserve
from quipu.broker.reply import Reply
from quipu.broker.routing import Key, Leader, endpoints, find_leader
from quipu.model.errors import MalformedBytes
from quipu.runtime.spawn import spawn
from quipu.wire.fast import parse_produce
from quipu.wire.produce_codec import STEP_PARTS, ProducedPart, produce_response_steps


def begin(
    broker: Broker, reply: Reply, frame: memoryview, *, version: int, correlation_id: int
) -> None:
    """Carry the request in `frame` out, and answer, when it is its turn."""
    if not reserve(broker, len(frame)):
        broker.stats.requests_refused += 1
        raise MalformedBytes("requests that wait for their turn use all of the memory for them "
                             "(queued.max.request.bytes); send it again later")
    request = _LargeProduce(broker, reply, reply.hold(frame), version, correlation_id)
    spawn(request.run(), "large produce")


class _LargeProduce:
    """One request, from its bytes to its answer."""

    def __init__(
        self, broker: Broker, reply: Reply, frame: memoryview, version: int, correlation_id: int
    ) -> None:
        self._broker = broker
        self._reply = reply
        self._frame = frame
        self._version = version
        self._correlation_id = correlation_id
        self._acks = 0
        self._results: list[Result] = []
        self._waiting = 1  # batches that are not kept yet, and one for those not appended yet
        self._kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        try:
            await self._append_all()
            await self._kept
            await self._answer()
        except MalformedBytes as error:
            self._reply.close(f"api 0 v{self._version}: {error}")
        except Exception as error:
            self._reply.close(f"produce failed: {error!r}")
            raise

    async def _append_all(self) -> None:
        size = len(self._frame)
        try:
            # Its bytes are counted by themselves (L4).
            async with self._broker.queue.turn(0, is_large=True, may_wait=False):
                await self._append_each()
        finally:
            self._frame = memoryview(b"")
            self._broker.stats.checking_bytes -= size
            self._reply.go_on()  # L1
        self._done()

    async def _append_each(self) -> None:
        broker, frame, turns = self._broker, self._frame, self._broker.queue.turns
        transactional_id, self._acks, timeout_ms, parts = parse_produce(frame, -1, self._version)
        code = why_refused(transactional_id, self._acks)
        wait_ms = min(timeout_ms, broker.settings.request_max_wait_ms)
        looks = Looks(broker, frame)
        for part in parts:
            topic, index, start, end = part
            if code:
                self._add(Result(topic, ProducedPart(index, code)))
            else:
                seen = await looks.at_heavy(part)
                stamps = broker.clock.now_ms(), self._acks, wait_ms
                self._add(append(broker, topic, index, frame[start:end] if start >= 0 else None,
                                 stamps, seen=seen))
            await turns.pause()

    def _add(self, result: Result) -> None:
        """A batch was appended, or not: wait until it is kept (L2)."""
        self._results.append(result)
        if result.waits is not None:
            self._waiting += 1
            result.waits(partial(self._when_kept, len(self._results) - 1))

    def _when_kept(self, place: int, error: Exception | None) -> None:
        if error is not None:
            self._results[place] = lost(self._results[place], error)
        self._done()

    def _done(self) -> None:
        self._waiting -= 1
        if self._waiting == 0:
            self._kept.set_result(None)

    async def _answer(self) -> None:
        results, turns = self._results, self._broker.queue.turns
        if self._acks == 0:
            refused = next((result.part for result in results if result.part.error_code), None)
            if refused is None:
                self._reply.send([])
            else:
                self._reply.close(f"produce with acks=0 was refused: {refused}")
            return
        await turns.begin()
        leaders = await turns.run(self._leaders())
        answer = await turns.run(produce_response_steps(
            self._correlation_id, self._version, by_topic(results), leaders=leaders,
            endpoints=endpoints(self._broker, leaders.values())))
        self._reply.send_large([answer], len(answer))

    def _leaders(self) -> Generator[None, None, dict[Key, Leader]]:
        """Who leads what this node does not."""
        leaders: dict[Key, Leader] = {}
        if self._version < VERSION_LEADERS:
            return leaders
        for number, (topic, part, _) in enumerate(self._results):
            if part.error_code == NOT_LEADER:
                key = topic, part.partition
                leader = find_leader(self._broker, key)
                if leader is not None:
                    leaders[key] = leader
            if number % STEP_PARTS == 0:
                yield
        return leaders

"""Produce of many batches, or many bytes: it takes turns with other requests.

The first batch of a partition may take a millisecond, because its log is opened; ten thousand of
them would block the event loop for seconds.  So such a request waits undecoded for its turn, its
batches are appended one by one, and its response is encoded in steps.

Invariants
    broker.serving.L1  later requests of its connection wait until its last batch is appended, so
                       batches of one connection are appended in the order in which they came
    broker.serving.L2  each batch is appended, and the wait for its outcome begins, without a pause
                       in between; a partition that is deleted, or gets another leader, between two
                       turns is an error of that partition alone
    broker.serving.L3  the request is carried out to its end even if its client disconnects
    broker.serving.L4  the bytes of all such requests are at most queued.max.request.bytes

Not here: what is done with one batch (producing.py), whose turn it is (runtime/turns.py).
"""

import asyncio
from collections.abc import Generator
from functools import partial

from quipu.broker.serving.context import Broker
from quipu.broker.serving.diskless_room import room
from quipu.broker.serving.producing import (
    NOT_LEADER,
    VERSION_LEADERS,
    ZSTD_VERSION_MIN,
    PendingPart,
    append,
    by_topic,
    last_of_each,
    outcome,
    refuse_for_acks,
    zstd_too_early,
)
from quipu.broker.serving.record_checks import HeavyBatchChecks, appended, release, reserve
from quipu.broker.serving.reply import Reply
from quipu.broker.serving.routing import Key, PartitionLeader, endpoints, find_leader
from quipu.model.errors import MalformedBytes
from quipu.runtime.spawn import spawn
from quipu.wire.fast import parse_produce
from quipu.wire.produce_codec import STEP_PARTS, ProducedPart, produce_response_steps


def begin(
    broker: Broker, reply: Reply, frame: memoryview, *, version: int, correlation_id: int
) -> None:
    """Carry out the request in `frame` when it is its turn, and respond."""
    if not reserve(broker, len(frame)):
        broker.stats.requests_refused += 1
        raise MalformedBytes("requests that wait for their turn use all of the memory for them "
                             "(queued.max.request.bytes); send it again later")
    request = _LargeProduce(broker, reply, reply.hold(frame), version, correlation_id)
    spawn(request.run(), "large produce")  # never cancelled: broker.serving.L3


class _LargeProduce:
    """One request, from its bytes to its response."""

    def __init__(
        self, broker: Broker, reply: Reply, frame: memoryview, version: int, correlation_id: int
    ) -> None:
        self._broker = broker
        self._reply = reply
        self._frame = frame
        self._version = version
        self._correlation_id = correlation_id
        self._acks = 0
        # Two lists instead of a list of pairs: ten thousand tuples would run a collection.
        self._topics: list[str | bytes] = []
        self._parts: list[ProducedPart | PendingPart] = []
        self._waiting = 1  # batches whose outcome is not known, and 1 until all are appended
        self._kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        try:
            await self._append_all()
            await self._kept
            await self._respond()
        except MalformedBytes as error:
            self._reply.close(f"api 0 v{self._version}: {error}")
        except Exception as error:
            self._reply.close(f"produce failed: {error!r}")
            raise

    async def _append_all(self) -> None:
        size = len(self._frame)
        try:
            # 0: its bytes are counted by `reserve` (broker.serving.L4).
            async with self._broker.queue.turn(0, is_large=True, may_wait=False):
                await self._append_each()
        finally:
            self._frame = memoryview(b"")
            self._broker.stats.checking_bytes -= size
            self._reply.go_on()  # broker.serving.L1
        self._done()

    async def _append_each(self) -> None:
        broker, frame, turns = self._broker, self._frame, self._broker.queue.turns
        _, self._acks, timeout_ms, parts = parse_produce(frame, -1, self._version)
        is_refused = not -1 <= self._acks <= 1
        wait_ms = min(timeout_ms, broker.settings.request_max_wait_ms)
        checks = HeavyBatchChecks(broker, frame)
        for part in last_of_each(parts):
            topic, index, start, end = part
            if is_refused:
                self._add(topic, refuse_for_acks(broker, frame, part, self._version))
            else:
                early = zstd_too_early(frame[start:end]) if (
                    self._version < ZSTD_VERSION_MIN and start >= 0) else None
                checked = early or await checks.check_if_heavy(part)
                await room(broker, [part])
                arrival = broker.clock.now_ms(), self._acks, wait_ms
                batch, seen = appended(frame, part, checked)
                self._add(topic, append(broker, topic, index, batch, arrival, checked=seen))
                release(broker, [checked])
            await turns.pause()

    def _add(self, topic: str | bytes, part: ProducedPart | PendingPart) -> None:
        """Add a batch, and wait for its outcome unless it is known (broker.serving.L2)."""
        self._topics.append(topic)
        self._parts.append(part)
        if isinstance(part, PendingPart):
            self._waiting += 1
            part.when_done(partial(self._outcome_known, len(self._parts) - 1))

    def _outcome_known(self, number: int, part: ProducedPart) -> None:
        self._parts[number] = part
        self._done()

    def _done(self) -> None:
        self._waiting -= 1
        if self._waiting == 0:
            self._kept.set_result(None)

    async def _respond(self) -> None:
        turns = self._broker.queue.turns
        if self._acks == 0:
            refused = next((part for part in self._parts if outcome(part).error_code), None)
            if refused is None:
                self._reply.send([])
            else:
                self._reply.close(f"produce with acks=0 was refused: {refused}")
            return
        await turns.begin()
        leaders = await turns.run(self._leaders())
        response = await turns.run(produce_response_steps(
            self._correlation_id, self._version, by_topic(self._topics, self._parts),
            leaders=leaders,
            endpoints=endpoints(self._broker, leaders.values(), self._reply.listener)))
        self._reply.send_large([response], len(response))

    def _leaders(self) -> Generator[None, None, dict[Key, PartitionLeader]]:
        """The leaders of the partitions that this node does not lead."""
        leaders: dict[Key, PartitionLeader] = {}
        if self._version < VERSION_LEADERS:
            return leaders
        for number, part in enumerate(self._parts):
            if outcome(part).error_code == NOT_LEADER:
                key = self._topics[number], part.partition
                leader = find_leader(self._broker, key)
                if leader is not None:
                    leaders[key] = leader
            if number % STEP_PARTS == 0:
                yield
        return leaders

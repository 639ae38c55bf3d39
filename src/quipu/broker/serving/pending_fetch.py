"""A fetch of few partitions, from its first pass to its response, and its wait in between.

It waits for new records, or for bytes that are being fetched from a remote tier or from an object;
for either no longer than the client's max wait, and only while the client is connected.

Not here: reading (fetching.py), requests of many partitions (large_fetch.py).
"""

import asyncio

from quipu.broker.serving.context import Broker
from quipu.broker.serving.fetch_sessions import NO_SESSION, FetchSession
from quipu.broker.serving.fetching import (
    MOVED,
    READ_COMMITTED,
    VERSION_LEADERS,
    FetchPass,
    Reader,
    by_topic,
    news,
    read,
    wait_ms,
)
from quipu.broker.serving.reply import Reply
from quipu.broker.serving.routing import endpoints, find_leaders
from quipu.model.partition_log import PartitionLog, PendingRead
from quipu.wire.fast import encode_one_fetched
from quipu.wire.fetch_codec import FetchCall, encode_fetch_response


class PendingFetch:
    """One request: waits for records as the `FetchWaiter` of its partitions, and responds."""

    __slots__ = (
        "_broker", "_call", "_coming", "_head", "_is_over", "_missing", "_reply", "_session",
        "_timer", "_waits_for",
    )

    def __init__(
        self,
        broker: Broker,
        reply: Reply,
        head: tuple[int, Reader],
        call: FetchCall,
        session: FetchSession,
    ) -> None:
        self._broker = broker
        self._reply = reply
        self._head = head  # correlation id, reader
        self._call = call
        self._session = session
        self._coming: list[PendingRead] = []
        self._missing = 0

    def wait(self, found: FetchPass) -> None:
        """Respond when enough bytes are there, or at the end of the client's max wait.

        If reads of the first pass wait for their bytes, that is when all of them have arrived; else
        it is when the client's min_bytes can be read.
        """
        broker = self._broker
        self._is_over = False
        self._waits_for: list[PartitionLog] = []
        for target in self._session.targets.values():
            partition = broker.partitions.find_for_wire(target.topic, target.partition)
            if partition is not None:
                self._waits_for.append(partition)
                partition.add_waiter(self)
        broker.partitions.waiting[self] = None
        broker.stats.fetch_waiters += 1
        self._timer: asyncio.TimerHandle | None = asyncio.get_running_loop().call_later(
            wait_ms(broker, self._call.max_wait, found.coming) / 1000, self._time_over)
        self._reply.when_lost(self._lost)
        self._await(found)

    def advanced(self, size: int) -> None:
        """Note that more can be read; respond at the end of this turn, if it is enough."""
        was_missing = self._missing > 0
        if size == 0:
            self._missing, self._is_over = 0, True  # something else has changed: respond soon
        elif not self._coming:
            self._missing -= size
        if was_missing and self._missing <= 0:
            self._broker.partitions.finish_soon(self)

    def _arrived(self) -> None:
        self._missing -= 1
        if self._missing == 0:
            self._broker.partitions.finish_soon(self)

    def finish(self) -> None:
        """End the wait, and respond with the records that can be read now.

        If there are none, but bytes had to be fetched to know that, or have to be fetched now, as
        those of a diskless topic that another node has written, the wait goes on.
        """
        if self._timer is None:
            return
        found = read(self._broker, self._session, self._head[1],
                     is_last=self._is_over or bool(self._coming))
        is_waiting = found.coming or self._coming
        self._cancel()  # after the pass above, which uses the bytes that have arrived
        if is_waiting and not (self._is_over or found.size or found.failed):
            self._await(found)
        else:
            self._end()
            self.send(found)

    def _time_over(self) -> None:
        self._is_over = True
        self.finish()

    def _await(self, found: FetchPass) -> None:
        """Wait for the bytes that a pass lacks, or else for records."""
        self._coming = found.coming
        self._missing = len(found.coming) or self._call.min_bytes - found.size
        for pending in found.coming:
            pending.when_arrived(self._arrived)

    def _lost(self) -> None:
        """End the wait, because the client has disconnected."""
        if self._end():
            self._cancel()

    def _cancel(self) -> None:
        for pending in self._coming:
            pending.cancel()

    def _end(self) -> bool:
        """Stop waiting; False if the wait had ended before."""
        if self._timer is None:
            return False
        self._timer.cancel()
        self._timer = None
        for partition in self._waits_for:
            partition.remove_waiter(self)
        broker = self._broker
        broker.partitions.waiting.pop(self, None)
        broker.stats.fetch_waiters -= 1
        broker.fetch_sessions.release(self._reply.fetch_client, self._session)
        return True

    def send(self, found: FetchPass) -> None:
        """Respond with `found`; in an incremental session, only with what has changed."""
        if found.coming:
            found.cancel()
        session = self._session
        parts = found.parts if session.id == NO_SESSION else news(session, found.parts)
        correlation_id, reader = self._head
        version = reader[1]
        committed_only = self._call.isolation_level == READ_COMMITTED
        self._broker.stats.fetched_bytes += found.size
        if found.failed and version >= VERSION_LEADERS:
            leaders = find_leaders(self._broker, (
                (target.topic, target.partition) for target, part in parts
                if part.error_code in MOVED))
            self._reply.send(encode_fetch_response(
                correlation_id, version, session_id=session.id, committed_only=committed_only,
                topics=by_topic(parts), leaders=leaders,
                endpoints=endpoints(self._broker, leaders.values(), self._reply.listener)))
        elif len(parts) == 1:
            target, part = parts[0]
            self._reply.send(encode_one_fetched(
                correlation_id, version, target.topic, part, session_id=session.id,
                committed_only=committed_only))
        else:
            self._reply.send(encode_fetch_response(
                correlation_id, version, session_id=session.id, committed_only=committed_only,
                topics=by_topic(parts)))

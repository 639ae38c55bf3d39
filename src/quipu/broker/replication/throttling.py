"""Limits the traffic of replicas that catch up (Kafka's leader and follower throttles).

A topic names its throttled replicas, a broker its bytes per second (model/throttle_settings.py).
Both ends of a link keep to their limit, each in its own way:

    sender     sends the next part of a log when its own leader rate, and the follower rate of the
               receiver, allow it; until then the part waits, in the order of the requests
    receiver   while it has received more than its follower rate, from all senders together, it
               holds back acknowledgements, so that the senders' windows fill

Invariants
    broker.replication.L1  what a required member is sent, or acknowledges, is never held: a member
                           that serves, or that has caught up and is about to.  So no write waits
                           because of a throttle
    broker.replication.L2  a limit that is changed or removed holds from the next part on, at the
                           next tick of the chain at the latest
    broker.replication.L3  for each limit, a chain waits once

Not here: whether a replica catches up (quipu.chain), the bucket of tokens (model/token_bucket.py).
"""

import asyncio
from collections.abc import Callable, Hashable
from math import inf
from typing import Final, Protocol

from quipu.model.ids import NodeId
from quipu.model.settings import TopicSettings
from quipu.model.settings_types import LONG_MAX
from quipu.model.throttle_settings import NOT_THROTTLED, ThrottledReplicas
from quipu.model.token_bucket import TokenBucket

UNLIMITED: Final = LONG_MAX
PART_SECONDS: Final = 0.1  # a part is what may be sent in this time, ...
PART_SIZE_MIN: Final = 16 << 10  # ... and this many bytes at least
WAIT_SECONDS_MIN: Final = 0.001  # less may be lost to rounding, and would be waited for again

PartitionKey = tuple[bytes, int]  # topic id, partition


class ReplicationRates(Protocol):
    """The bytes per second that the settings allow."""

    def leader_rate(self) -> int:
        """What this node may send to replicas that catch up."""
        ...

    def follower_rate(self, node_id: NodeId) -> int:
        """What `node_id` may receive while it catches up."""
        ...


class Unlimited:
    """ReplicationRates of a node without throttles."""

    def leader_rate(self) -> int:
        return UNLIMITED

    def follower_rate(self, node_id: NodeId) -> int:
        del node_id
        return UNLIMITED


def throttled_replicas(settings: TopicSettings | None) -> ThrottledReplicas:
    """The throttled replicas that a topic's settings name."""
    if settings is None:
        return NOT_THROTTLED
    leaders = settings.leader_replication_throttled_replicas
    followers = settings.follower_replication_throttled_replicas
    if not leaders and not followers:
        return NOT_THROTTLED
    return ThrottledReplicas(frozenset(leaders), frozenset(followers))


class PacedTraffic:
    """Traffic that shares a limit, and who waits for it, in order."""

    __slots__ = ("_bucket", "_monotonic", "_timer", "_waiting")

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._bucket: TokenBucket | None = None
        self._waiting: dict[Hashable, Callable[[], None]] = {}  # broker.replication.L3
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def admit(self, rate: int, who: Hashable, resume: Callable[[], None]) -> bool:
        """Whether `who` may go on now; if not, `resume` is called as soon as it may."""
        wait = self._filled(rate).wait(self._monotonic())
        first = next(iter(self._waiting), who)
        if wait <= 0 and first == who:
            self._waiting.pop(who, None)
            self._resume_after(wait)
            return True
        self._waiting[who] = resume
        self._resume_after(wait)
        return False

    def take(self, rate: int, size: int) -> None:
        """Count `size` bytes, which may be more than the limit allows now."""
        self._filled(rate).take(size, self._monotonic())

    def discard(self, who: Hashable) -> None:
        """Forget that `who` waits: it is not limited any more (broker.replication.L2)."""
        if self._waiting.pop(who, None) is not None and self._timer is None:
            self._resume_after(0)

    def stop(self) -> None:
        """Call nobody any more."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _filled(self, rate: int) -> TokenBucket:
        if self._bucket is None:
            self._bucket = TokenBucket(rate, part_size(rate))
        self._bucket.change(rate, part_size(rate), self._monotonic())
        return self._bucket

    def _resume_after(self, seconds: float) -> None:
        """Resume those that wait after `seconds`, unless that is due already."""
        if self._waiting and self._timer is None and seconds < inf:
            self._timer = asyncio.get_running_loop().call_later(
                max(seconds, WAIT_SECONDS_MIN), self._resume)

    def _resume(self) -> None:
        self._timer = None
        for who, resume in list(self._waiting.items()):
            assert self._bucket is not None
            if (wait := self._bucket.wait(self._monotonic())) > 0:
                self._resume_after(wait)
                return
            if who in self._waiting:
                resume()  # which asks again: it is the first that waits
                self._waiting.pop(who, None)
        self._resume_after(0)


def part_size(rate: int) -> int:
    """Bytes that are sent at once at a limit of `rate` bytes per second."""
    return max(PART_SIZE_MIN, int(min(rate, 1 << 40) * PART_SECONDS))


class ReplicationThrottle:
    """The limits of one node's chains."""

    def __init__(
        self, node_id: NodeId, monotonic: Callable[[], float], rates: ReplicationRates
    ) -> None:
        self._node_id = node_id
        self._monotonic = monotonic
        self._rates = rates
        self._topics: dict[bytes, ThrottledReplicas] = {}  # by id; only those with throttles
        self._sending = PacedTraffic(monotonic)
        self._sending_to: dict[NodeId, PacedTraffic] = {}
        self._receiving = PacedTraffic(monotonic)

    def configure(self, topic_id: bytes, replicas: ThrottledReplicas) -> None:
        """Take `replicas` as the throttled ones of a topic from now on."""
        if replicas == NOT_THROTTLED:
            self._topics.pop(topic_id, None)
        else:
            self._topics[topic_id] = replicas

    def stop(self) -> None:
        """Resume nothing any more."""
        for paced in (self._sending, self._receiving, *self._sending_to.values()):
            paced.stop()

    def forget(self, key: PartitionKey) -> None:
        """Resume nothing of a partition any more: this node is not a member of it."""
        for paced in (self._sending, self._receiving, *self._sending_to.values()):
            paced.discard(key)

    # -- the sender

    def room_to_send(
        self, key: PartitionKey, to: NodeId, size_max: int, resume: Callable[[], None]
    ) -> int:
        """How many bytes, of at most `size_max`, may be sent to a member that catches up.

        0: none yet; `resume` is called when some may be sent.
        """
        for paced, rate in self._limits_to(key, to):
            if rate >= UNLIMITED:
                paced.discard(key)
            elif paced.admit(rate, key, resume):
                size_max = min(size_max, part_size(rate))
            else:
                return 0
        return size_max

    def sent(self, key: PartitionKey, to: NodeId, size: int) -> None:
        """Count what was sent to a member that catches up."""
        for paced, rate in self._limits_to(key, to):
            if rate < UNLIMITED:
                paced.take(rate, size)

    def _limits_to(self, key: PartitionKey, to: NodeId) -> list[tuple[PacedTraffic, int]]:
        replicas = self._topics.get(key[0])
        if replicas is None and not self._sending.waiting_count and not self._sending_to:
            return []  # as nearly always
        replicas = replicas or NOT_THROTTLED
        here = replicas.sends_limited(key[1], self._node_id)
        there = replicas.receives_limited(key[1], to)
        found = [(self._sending, self._rates.leader_rate() if here else UNLIMITED)]
        if there or to in self._sending_to:
            paced = self._sending_to.setdefault(to, PacedTraffic(self._monotonic))
            found.append((paced, self._rates.follower_rate(to) if there else UNLIMITED))
        return found

    # -- the receiver

    def received(self, key: PartitionKey, size: int) -> None:
        """Count what this node has received while it catches up."""
        rate = self._receiving_rate(key)
        if rate < UNLIMITED:
            self._receiving.take(rate, size)

    def may_acknowledge(self, key: PartitionKey, resume: Callable[[], None]) -> bool:
        """Whether this node, which catches up, may acknowledge; else `resume` is called later."""
        rate = self._receiving_rate(key)
        if rate < UNLIMITED:
            return self._receiving.admit(rate, key, resume)
        self._receiving.discard(key)
        return True

    def _receiving_rate(self, key: PartitionKey) -> int:
        replicas = self._topics.get(key[0])
        if replicas is None or not replicas.receives_limited(key[1], self._node_id):
            return UNLIMITED
        return self._rates.follower_rate(self._node_id)

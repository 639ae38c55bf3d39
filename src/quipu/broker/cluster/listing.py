"""What clients are told of brokers that fail and come back: a little less, and a little later.

    listed     librdkafka takes down a broker that is missing from a Metadata answer, and with it
               the partitions that the same answer says have moved elsewhere: they are looked for
               again a second later.  So a broker that has failed stays on the list until its
               clients have learnt who leads instead, for those who ask about topics by name.
               Not for longer, and not for others: clients ask any broker on the list for the
               coordinator of their group, and admin clients ask all, and would wait for it
    settled    a client that found a broker down waits longer and longer before it tries again, ten
               seconds at most by default.  So readers are not sent to a broker that has just come
               back: they would wait there for their own patience to end

Not here: who is up (liveness.py).
"""

from typing import Final

from quipu.broker.cluster.machine import Machine
from quipu.controller.members import BrokerState
from quipu.controller.state import Topic
from quipu.model.ids import NodeId
from quipu.runtime.clock import Clock

LISTED_SECONDS: Final = 2.0  # after a broker was fenced: clients look again every second
SETTLED_SECONDS: Final = 10.0  # after one that had been fenced is back
JUST_NOW: Final = float("inf")
LONG_AGO: Final = float("-inf")


class BrokerListing:
    """A listener of the cluster that remembers when brokers were fenced and when they came back."""

    def __init__(self, machine: Machine, clock: Clock) -> None:
        self._machine = machine
        self._clock = clock
        self._up: frozenset[NodeId] = frozenset()
        self._fenced_at: dict[NodeId, float] = {}  # of those who are
        self._back_at: dict[NodeId, float] = {}  # of those who were, and are not

    def brokers(self, *, for_topics: bool) -> list[BrokerState]:
        """Every broker to tell a client of; `for_topics`: of those too that just failed."""
        since = self._clock.monotonic() - LISTED_SECONDS
        return [broker for broker in self._machine.state.brokers.values()
                if not broker.fenced or (
                    for_topics and self._fenced_at.get(broker.node_id, JUST_NOW) > since)]

    def is_settled(self, node_id: NodeId) -> bool:
        """Is a broker that is up one whose clients do not remember it as down?"""
        back_at = self._back_at.get(node_id, LONG_AGO)
        return self._clock.monotonic() - back_at >= SETTLED_SECONDS

    def begin(self) -> None:
        """Who is fenced by now has been so for long, as far as this node knows."""
        self._up = frozenset(self._machine.state.up())
        self._fenced_at = dict.fromkeys(self._machine.state.brokers.keys() - self._up, LONG_AGO)

    def on_brokers_changed(self) -> None:
        """Note who was fenced just now, and who is back."""
        now, state = self._clock.monotonic(), self._machine.state
        up = frozenset(state.up())
        for node_id in self._up - up:
            self._fenced_at[node_id] = now
        for node_id in up - self._up:
            if self._fenced_at.pop(node_id, LONG_AGO) != LONG_AGO:
                self._back_at[node_id] = now
        for node_id in state.brokers.keys() - up - self._fenced_at.keys():
            self._fenced_at[node_id] = LONG_AGO  # a new one, on its way up
        for times in (self._fenced_at, self._back_at):
            for node_id in times.keys() - state.brokers.keys():
                del times[node_id]
        self._up = up

    def on_topic_created(self, topic: Topic) -> None: ...
    def on_partitions_added(self, topic: Topic, first_new: int) -> None: ...
    def on_topic_deleted(self, topic: Topic) -> None: ...
    def on_config_changed(self, topic: Topic) -> None: ...
    def on_replicas_changed(self, topic: Topic) -> None: ...

"""Which brokers clients are shown, shortly after a broker has failed or come back.

    listed     librdkafka removes a broker that is missing from a Metadata response, and with it the
               partitions that this response assigns to other leaders: it finds them again only a
               second later.  So a failed broker stays in the responses to requests that name
               topics, until its clients have learnt the new leaders.  Not for longer, and not in
               other responses: clients ask any listed broker for the coordinator of their group,
               and admin clients ask all of them, and would wait for the failed one
    settled    a client that could not connect to a broker backs off before it tries again, up to
               ten seconds by default.  So consumers are not sent to a broker that has just come
               back: they would wait for the end of their own backoff

Not here: which brokers are up (liveness.py).
"""

from typing import Final

from quipu.broker.cluster.state_machine import MetadataStateMachine
from quipu.controller.members import BrokerState
from quipu.controller.topic_state import Topic
from quipu.model.ids import NodeId
from quipu.runtime.clock import Clock

LISTED_SECONDS: Final = 2.0  # after a broker was fenced: clients ask again every second
SETTLED_SECONDS: Final = 10.0  # after a broker that was fenced is back
JUST_NOW: Final = float("inf")
LONG_AGO: Final = float("-inf")


class BrokerListing:
    """A metadata listener that remembers when brokers were fenced and when they came back."""

    def __init__(self, machine: MetadataStateMachine, clock: Clock) -> None:
        self._machine = machine
        self._clock = clock
        self._up: frozenset[NodeId] = frozenset()
        self._fenced_at: dict[NodeId, float] = {}  # of fenced brokers
        self._back_at: dict[NodeId, float] = {}  # of brokers that were fenced and are up again

    def brokers(self, *, for_topics: bool) -> list[BrokerState]:
        """The brokers to show to a client; with `for_topics`, also those that have just failed."""
        since = self._clock.monotonic() - LISTED_SECONDS
        return [broker for broker in self._machine.state.brokers.values()
                if not broker.fenced or (
                    for_topics and self._fenced_at.get(broker.node_id, JUST_NOW) > since)]

    def is_settled(self, node_id: NodeId) -> bool:
        """Whether clients have stopped backing off from a broker that is up."""
        back_at = self._back_at.get(node_id, LONG_AGO)
        return self._clock.monotonic() - back_at >= SETTLED_SECONDS

    def begin(self) -> None:
        """Start: brokers that are fenced now count as fenced long ago."""
        self._up = frozenset(self._machine.state.up())
        self._fenced_at = dict.fromkeys(self._machine.state.brokers.keys() - self._up, LONG_AGO)

    def on_brokers_changed(self) -> None:
        """Note which brokers were fenced, and which are back."""
        now, state = self._clock.monotonic(), self._machine.state
        up = frozenset(state.up())
        for node_id in self._up - up:
            self._fenced_at[node_id] = now
        for node_id in up - self._up:
            if self._fenced_at.pop(node_id, LONG_AGO) != LONG_AGO:
                self._back_at[node_id] = now
        for node_id in state.brokers.keys() - up - self._fenced_at.keys():
            self._fenced_at[node_id] = LONG_AGO  # a new broker that is not unfenced yet
        for times in (self._fenced_at, self._back_at):
            for node_id in times.keys() - state.brokers.keys():
                del times[node_id]
        self._up = up

    def on_topic_created(self, topic: Topic) -> None: ...
    def on_partitions_added(self, topic: Topic, first_new: int) -> None: ...
    def on_topic_deleted(self, topic: Topic) -> None: ...
    def on_config_changed(self, topic: Topic) -> None: ...
    def on_replicas_changed(self, topic: Topic) -> None: ...

"""A new head before it leads: it chooses the log with which the epoch begins.

It asks every member that serves in its epoch where its log ends.  All of them have every committed
batch, so any of their logs is correct; the longest, by the epoch of its last batch and then by its
end, keeps most of the batches that were not acknowledged yet (V14).  If the longest is not its own,
the head truncates what differs from it and fetches what it lacks.  Then it appends the epoch's
configuration, and leads.

Invariants
    chain.R1  no log is chosen before all serving members have responded
    chain.R2  until a member has the epoch's configuration, only the head's choice changes its log
"""

from quipu.chain.effects import AppendConfiguration, Effect, SendMessage
from quipu.chain.inbound import Inbound
from quipu.chain.messages import DescribeLog, DescribeReason, LogDescription
from quipu.chain.relay import Relay
from quipu.chain.state import ReplicaState
from quipu.model.ids import LogOffset, NodeId


class Recovery:
    """The descriptions of the serving members' logs, and which log was chosen."""

    __slots__ = ("_descriptions", "_fetched", "_state", "source")

    def __init__(self, state: ReplicaState) -> None:
        assert state.members.head == state.node_id, state.members
        assert not state.is_current, state.epoch
        self._state = state
        self._descriptions: dict[NodeId, LogDescription] = {}
        self._fetched = LogOffset(-1)
        self.source: NodeId | None = None  # the member whose log was chosen; mostly this node

    def invariants(self) -> None:
        """Assert what holds between two events."""
        state, source = self._state, self.source
        assert state.members.head == state.node_id, state.members
        assert state.node_id not in self._descriptions, state.node_id
        assert source is None or source == state.node_id or source in self._descriptions, (
            source)  # chain.R1

    @property
    def missing(self) -> list[NodeId]:
        """The serving members that have not responded yet."""
        state = self._state
        return [node for node in state.members.serving
                if node != state.node_id and node not in self._descriptions]

    def ask(self) -> list[Effect]:
        """Ask the members that have not responded where their logs end."""
        assert self._state.members.head == self._state.node_id, self._state.members
        missing = self.missing
        assert self.source is None or not missing, missing  # chain.R1
        return [SendMessage(node, DescribeLog(self._state.epoch)) for node in missing]

    def advance(self, relay: Relay) -> list[Effect]:
        """Take the next step if it can be taken: choose a log, fetch it, begin the epoch."""
        state = self._state
        assert state.is_recovering, state.role
        if self.source is None:
            if self.missing:
                return []
            self.choose()
        source = self.source
        assert source is not None
        if self.is_complete:
            assert not state.is_current, state.epoch
            relay.inbound = None
            return [AppendConfiguration(state.members)]
        if relay.inbound is None:
            assert source != state.node_id, source
            relay.inbound = Inbound(state, source)
            return [SendMessage(source, state.describe(DescribeReason.FETCH))]
        assert relay.inbound.peer == source, (relay.inbound.peer, source)  # chain.R2
        return []

    def tick(self, relay: Relay) -> list[Effect]:
        """Ask again: the members that have not responded, or the source if it sends nothing."""
        inbound = relay.inbound
        effects = self.ask() + self.advance(relay)
        if inbound is not None and inbound is relay.inbound and self._has_stalled():
            description = self._state.describe(DescribeReason.FETCH)
            effects.append(SendMessage(inbound.peer, description))
        return effects

    def _has_stalled(self) -> bool:
        """Whether the log has not grown since the last call."""
        before, self._fetched = self._fetched, self._state.log.log_end
        return before == self._fetched

    def described(self, node: NodeId, description: LogDescription) -> None:
        """Note where the log of `node` ends, unless a log was chosen already."""
        assert node != self._state.node_id, node
        assert description.epoch == self._state.epoch, (description.epoch, self._state.epoch)
        is_possible = description.last_epoch < self._state.epoch  # only the head begins an epoch
        if self.source is None and is_possible and node in self._state.members.serving:
            self._descriptions[node] = description

    def find(self, node: NodeId) -> LogDescription | None:
        """Return the description that `node` has sent; None if it has not."""
        return self._descriptions.get(node)

    def choose(self) -> None:
        """Choose the longest log; of equal ones this node's own, then the nearest."""
        assert not self.missing, self.missing  # chain.R1
        assert self.source is None, self.source
        log = self._state.log
        self.source = self._state.node_id
        longest = (int(log.last_epoch), int(log.log_end))
        for node in self._state.members.serving[1:]:
            found = self._descriptions[node]
            if (found.last_epoch, found.log_end) > longest:
                self.source = node
                longest = (found.last_epoch, found.log_end)
        assert longest >= (log.last_epoch, log.log_end), longest
        assert self.source in self._state.members.serving, self.source  # chain.R1

    @property
    def is_complete(self) -> bool:
        """Whether this node has all of the chosen log."""
        if self.source is None:
            return False
        if self.source == self._state.node_id:
            return True
        chosen = self._descriptions[self.source]
        log = self._state.log
        return (log.last_epoch, log.log_end) == (chosen.last_epoch, chosen.log_end)

"""A new head before it leads: whose log is the chain's?

It asks every member that serves in its epoch.  All of them have everything that is committed, so
any of their logs will do; the longest, by the epoch of its last batch and then by its end, saves
most of what was not acknowledged yet (V14).  If that is not the head's own, the head cuts what
parts from it and is sent what it lacks.  Then the epoch's configuration is appended, and it leads.

Invariants
    R1  nothing is chosen before all serving members have answered
    R2  until a member has the epoch's configuration, nobody but the head's choice touches its log
"""

from quipu.chain.effects import Effect, Send
from quipu.chain.messages import Describe, Described
from quipu.chain.standing import Standing
from quipu.model.ids import LogOffset, NodeId


class Recovery:
    """What the members have answered so far, and which log was chosen."""

    __slots__ = ("_answers", "_pulled", "_standing", "source")

    def __init__(self, standing: Standing) -> None:
        self._standing = standing
        self._answers: dict[NodeId, Described] = {}
        self._pulled = LogOffset(-1)
        self.source: NodeId | None = None  # the chosen one; this node itself, mostly

    @property
    def missing(self) -> list[NodeId]:
        """Who has not answered yet."""
        standing = self._standing
        return [node for node in standing.members.serving
                if node != standing.node_id and node not in self._answers]

    def ask(self) -> list[Effect]:
        return [Send(node, Describe(self._standing.epoch)) for node in self.missing]

    @property
    def is_stuck(self) -> bool:
        """Has the log not grown since this was last asked?"""
        before, self._pulled = self._pulled, self._standing.log.log_end
        return before == self._pulled

    def answer(self, node: NodeId, described: Described) -> None:
        if self.source is None and node in self._standing.members.serving:
            self._answers[node] = described

    def find(self, node: NodeId) -> Described | None:
        """What `node` answered."""
        return self._answers.get(node)

    def choose(self) -> None:
        """The longest log wins; at equal length this node's own, then the one nearest to it."""
        assert not self.missing, self.missing  # R1
        log = self._standing.log
        self.source = self._standing.node_id
        longest = (int(log.last_epoch), int(log.log_end))
        for node in self._standing.members.serving[1:]:
            answer = self._answers[node]
            if (answer.last_epoch, answer.log_end) > longest:
                self.source = node
                longest = (answer.last_epoch, answer.log_end)

    @property
    def is_complete(self) -> bool:
        """Does this node have all of the chosen log?"""
        if self.source is None:
            return False
        if self.source == self._standing.node_id:
            return True
        chosen = self._answers[self.source]
        log = self._standing.log
        return (log.last_epoch, log.log_end) == (chosen.last_epoch, chosen.log_end)

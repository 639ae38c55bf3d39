"""Planted bugs: each changes one rule of one part, and must be found by a world of few seeds.

A mutation patches the real code while a world runs.  The rules are those that the parts' own
docstrings state; the names say what would be wrong.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from quipu.chain.effects import Effect, ReportInSync
from quipu.chain.flow import Flow
from quipu.chain.messages import Message
from quipu.chain.outbound import Outbound
from quipu.chain.replica import Replica
from quipu.model.chains import MemberState
from quipu.model.ids import NodeId


class Mutation(NamedTuple):
    """One planted bug, and where it is looked for."""

    name: str
    part: str
    world: str
    patch: Callable[[pytest.MonkeyPatch], None]
    seeds_max: int = 40


# -- chain


def acks_alone(patch: pytest.MonkeyPatch) -> None:
    """C2: a node acknowledges what it has, whether its successor has it or not."""
    settle = Flow._settle

    def mutant(self: Flow) -> Any:
        link, self.link = self.link, None
        try:
            return settle(self)
        finally:
            self.link = link

    patch.setattr(Flow, "_settle", mutant)


def reports_early(patch: pytest.MonkeyPatch) -> None:
    """C5: a syncing member is said to have everything as soon as it has answered."""
    def mutant(self: Flow, link: Outbound) -> list[Effect]:
        if link.is_serving or self._standing.state is not MemberState.SERVING:
            return []
        return [ReportInSync(link.to, self._standing.members.version)]

    patch.setattr(Flow, "_weigh", mutant)


def no_fencing(patch: pytest.MonkeyPatch) -> None:
    """V15: messages of other epochs are taken for messages of this one."""
    receive = Replica._receive

    def mutant(self: Replica, sender: NodeId, message: Message) -> Any:
        return receive(self, sender, message._replace(epoch=self.epoch))

    patch.setattr(Replica, "_receive", mutant)


MUTATIONS = [
    Mutation("a node acknowledges alone", "chain", "chain", acks_alone),
    Mutation("a syncing member is reported early", "chain", "chain", reports_early),
    Mutation("epochs do not fence", "chain", "chain", no_fencing),
]

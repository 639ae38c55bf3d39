"""Reads of the newest epoch, by nodes that received a message with a newer one than they know.

Such a node asks the controller repeatedly, as a real one does with its heartbeats.  A response
takes time, so it does not cover messages that arrived meanwhile (chain/epoch_fence.py).
"""

from typing import TYPE_CHECKING, Final

from quipu.chain.events import EpochConfirmed

if TYPE_CHECKING:
    from quipu.sim.worlds.chain import ChainNode, ChainWorld

READ_MS: Final = 20.0  # between two reads
ANSWER_MS_MAX: Final = 8.0


class EpochReads:
    """The nodes that ask the controller for the newest epoch, and in which life."""

    def __init__(self, world: "ChainWorld") -> None:
        self._world = world
        self._dice = world.dice.fork("epochs")
        self._asking: dict[ChainNode, int] = {}

    def ask(self, node: "ChainNode") -> None:
        """`node` has received a message with a newer epoch: start to ask."""
        if self._asking.get(node) != node.life:
            self._asking[node] = life = node.life
            self._world.later(READ_MS / 2, lambda: self._read(node, life))

    def _read(self, node: "ChainNode", life: int) -> None:
        world, replica = self._world, node.replica
        if replica is None or node.life != life or not replica.fence.is_fenced:
            self._asking.pop(node, None)
            return
        if world.oracle.life_of(node.node_id) == life:
            answer = EpochConfirmed(world.oracle.epoch, replica.fence.claim_count)
            world.later(self._dice.between(0.1, ANSWER_MS_MAX),
                        lambda: self._answered(node, life, answer))
        world.later(READ_MS, lambda: self._read(node, life))

    @staticmethod
    def _answered(node: "ChainNode", life: int, answer: EpochConfirmed) -> None:
        if node.life == life:
            node.happens(answer)

"""A world of real nodes whose partitions have orders, and numbers of replicas, of their own.

All of `worlds/node.py`: the same clients, faults and checkers.  In addition the seed chooses the
replication factor of all topics, whether their partitions are spread over chains, and that their
orders are rotated: so partitions are on derived chains (controller/derived_chains.py), which have
different heads and tails and lose different members by one fault.

A world whose topics have one replica loses no disk: no other node would have the records.
"""

import dataclasses
from typing import Final

from quipu.sim.worlds.node import NodeWorld, NodeWorldPlan, plan_of

SHAPES: Final = ((2,), (3,), (3,), (3,), (4,), (2, 2), (3, 1))  # nodes of each chain
PARTITIONS_MAX: Final = 3


class OrderedNodeWorld(NodeWorld):
    """See the module."""

    def _make_plan(self) -> NodeWorldPlan:
        plan = plan_of(self.world, SHAPES)
        dice = self.world.dice.fork("orders")
        factor = 1 + dice.below(sum(plan.chains))
        in_sync = min(dice.choose([0, 1, 1, 2]), factor)
        settings = [
            *(each for each in plan.settings if not each.startswith("min.insync.replicas=")),
            f"min.insync.replicas={in_sync}", f"default.replication.factor={factor}",
            "chain.rotate=true", f"chain.spread={dice.choose(['topic', 'partition'])}",
            "offsets.topic.num.partitions=3",
        ]
        malice = plan.malice
        if factor == 1:
            malice = dataclasses.replace(
                malice, lost_disks=False, old_disks=False, mishaps=False)
        return dataclasses.replace(
            plan, settings=tuple(settings), malice=malice,
            partitions=2 + dice.below(PARTITIONS_MAX - 1))

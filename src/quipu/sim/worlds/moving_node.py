"""A world of real nodes whose partitions move to random lists of nodes all the time.

All of `worlds/node.py`: the same clients, faults and checkers.  In addition a client moves the
partitions that others write to and read, and the group's, to lists of two nodes or more, in any
order, of one chain or several, and calls some of the moves off; in some worlds replicas that catch
up are throttled.  After the faults all moves come to rest.
"""

import dataclasses
from typing import Final

from quipu.controller import reassignment
from quipu.sim.workloads.moving import Mover
from quipu.sim.worlds.node import NodeWorld, NodeWorldPlan, node_of, plan_of

SHAPES: Final = ((3,), (3,), (4,), (2, 2), (3, 2))
LENGTH_MIN: Final = 2  # nodes of a partition: faults leave one of two alone
THROTTLED: Final = (("leader_replication_throttled_replicas", "*"),
                    ("follower_replication_throttled_replicas", "*"))


class MovingNodeWorld(NodeWorld):
    """See the module."""

    def _make_plan(self) -> NodeWorldPlan:
        plan, dice = plan_of(self.world, SHAPES), self.world.dice.fork("moves")
        rates: tuple[str, ...] = ()
        if is_throttled := dice.flip(0.4):
            rates = tuple(f"{role}.replication.throttled.rate={dice.choose([10_000, 100_000])}"
                          for role in ("leader", "follower"))
        return dataclasses.replace(
            plan, settings=(*plan.settings, *rates), topic=THROTTLED if is_throttled else ())

    async def _load(self) -> None:
        await super()._load()
        mover = Mover(
            self.client("mover"), self.load,
            [("t", index) for index in range(self.plan.partitions)],
            range(1, 1 + len(self.plan.names)), LENGTH_MIN)
        self.world.run(mover.run(), "mover")

    def _logs_unsettled(self) -> str:
        for machine in self.world.machines.values():
            if moving := reassignment.ongoing(node_of(machine).broker.cluster.state):
                return f"{machine.name} sees {moving}"
        return super()._logs_unsettled()

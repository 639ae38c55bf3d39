"""Three nodes in bad weather: whatever fails and in which order, one speaks, and all recover."""

import pytest

from quipu.controller.topic_requests import NewTopic
from quipu.model.errors import Code, QuipuError
from quipu.model.ids import NodeId
from quipu.sim.dice import Dice
from quipu.sim.loop import Life
from quipu.sim.twins.net import CALM, Weather
from tests.broker.cluster.rig import Rig

FOUL = Weather(delay_max=0.05, loss=0.05, duplicate=0.02, reorder=0.05)
STEPS = 25


class Storm:
    """Faults by chance, and clients that create topics meanwhile."""

    def __init__(self, seed: int, *, with_raft: bool = False) -> None:
        self.rig = Rig(seed, with_raft=with_raft)
        self.dice = Dice(seed, "storm")
        self.acknowledged: set[str] = set()
        self._asked = 0

    def run(self) -> None:
        rig = self.rig
        rig.boot()
        rig.chain()
        rig.world.net.set_weather(FOUL)
        for _ in range(STEPS):
            self._create()
            self._fault()
            rig.run_for(self.dice.between(0.05, 1.5))
        self._calm()
        rig.until(self._is_whole, "whole again", seconds=60)

    def _create(self) -> None:
        """Ask some node for a topic; it may fail before it responds."""
        number, node_id = self._asked, self.dice.choose(list(self.rig.machines))
        machine = self.rig.machines[node_id]
        self._asked += 1
        if not (machine.is_up and machine.is_running):
            return
        cluster = self.rig.cluster(node_id)

        async def create() -> None:
            try:
                (result,) = await self.rig.create_topics(cluster, NewTopic(f"t{number}"))
            except QuipuError:
                return
            if result.error_code in (Code.NONE, Code.TOPIC_ALREADY_EXISTS):
                self.acknowledged.add(f"t{number}")
                assert f"t{number}" in cluster.state.topics

        self.rig.world.run_on(machine, create, "create")

    def _fault(self) -> None:
        node_id = self.dice.choose(list(self.rig.machines))
        machine = self.rig.machines[node_id]
        assert machine.process is not None
        match self.dice.below(7):
            case 0 if not machine.is_dead:
                self.rig.kill(node_id)
            case 1 if machine.is_running and machine.is_up:
                machine.stop()
            case 2 if machine.is_running:
                machine.pause()
            case 3:
                self.rig.cut_off(node_id)
            case 4:
                self.rig.world.net.heal()
            case 5 if machine.is_running and machine.is_up:
                self.rig.hang_up(node_id)
                if self.dice.flip(0.5):
                    self.rig.cut_off(node_id)
            case _:
                self._revive(node_id)

    def _revive(self, node_id: NodeId) -> None:
        machine = self.rig.machines[node_id]
        if machine.is_dead:
            self.rig.council.seats.pop(node_id, None)
            machine.boot()
        elif machine.process is not None and machine.process.life is Life.PAUSED:
            machine.resume()

    def _calm(self) -> None:
        self.rig.world.net.set_weather(CALM)
        self.rig.world.net.heal()
        for _ in range(2):
            for node_id in self.rig.machines:
                self._revive(node_id)
            self.rig.run_for(15)  # nodes that were stopping have stopped

    def _is_whole(self) -> bool:
        rig = self.rig
        if not all(machine.is_up and machine.is_running for machine in rig.machines.values()):
            return False
        states = [rig.cluster(node_id).state for node_id in rig.machines]
        return (len(rig.serving()) == 3
                and all(not broker.fenced for broker in states[0].brokers.values())
                and all(state == states[0] for state in states)
                and all(rig.cluster(node_id).lease_until > rig.world.loop.now
                        for node_id in rig.machines)
                and self.acknowledged <= states[0].topics.keys())


@pytest.mark.parametrize("with_raft", [False, True], ids=["council", "raft"])
@pytest.mark.parametrize("seed", range(6))
def test_storms_pass(seed: int, *, with_raft: bool) -> None:
    """V5, V15, V16: `OneSpeaker` looks after every step; what was acknowledged is there."""
    storm = Storm(seed, with_raft=with_raft)
    try:
        storm.run()
        assert storm.acknowledged
    finally:
        storm.rig.world.end()

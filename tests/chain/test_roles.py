"""The table of roles: every row is reached by a replica, every other step is an error."""

import re
from itertools import product

import pytest

from quipu.chain import roles
from quipu.chain.events import EpochConfirmed, Received
from quipu.chain.messages import BEGIN, OPEN, TRUNCATE, DescribeLog, Mark, Replicate
from quipu.chain.roles import NEXT, Role, advance
from quipu.chain.state import ReplicaState
from quipu.model.ids import Epoch, LogOffset, NodeId, Offset
from quipu.sim.worlds.chain import ChainWorld
from tests.chain.stage import Stage, members

Step = tuple[Role, Role]
STEPS = sorted((role, to) for role, following in NEXT.items() for to in following if to is not role)
FIRST = {  # what a new epoch makes of node 2
    Role.NONE: lambda epoch: members("13", offline="2", epoch=epoch),
    Role.SYNCING: lambda epoch: members("13", "2", epoch=epoch),
    Role.JOINING: lambda epoch: members("123", epoch=epoch),
    Role.RECOVERING: lambda epoch: members("213", epoch=epoch),
}


def in_role(role: Role) -> Stage:
    """Node 2 has `role`, in epoch 2; it has committed batches where it can be halted."""
    stage = Stage(3)
    for actor in stage.actors.values():
        actor.fill(1, 1, 1)
        actor.restart(committed=Mark(LogOffset(3), Offset(3)))
    match role:
        case Role.FOLLOWING:
            stage.configure(FIRST[Role.JOINING](2))
            stage.run()
        case Role.LEADING:
            stage.configure(FIRST[Role.RECOVERING](2))
            stage.run()
        case Role.FENCED:
            stage.configure(FIRST[Role.JOINING](2), 2)
            claim_newer_epoch(stage)
        case Role.HALTED:
            stage[2].fill(2)
            stage.configure(FIRST[Role.RECOVERING](2), 2)
        case _:
            stage.configure(FIRST[role](2), 2)
    assert stage[2].replica.role is role
    return stage


def claim_newer_epoch(stage: Stage) -> None:
    stage[2].happens(Received(NodeId(1), DescribeLog(Epoch(5))))


def truncate_what_is_committed(stage: Stage) -> None:
    """The predecessor of node 2 asks it to truncate batches that are committed."""
    replica = stage[2].replica
    assert replica.replica_set is not None
    sender = replica.replica_set.predecessor(NodeId(2))
    assert sender is not None
    stage[2].happens(Received(sender, Replicate(
        replica.epoch, replica.replica_set.version, OPEN | TRUNCATE, 1 << 50, LogOffset(2),
        Epoch(1), BEGIN, BEGIN, LogOffset(2), stage[2].log.log_end, ())))


def take(stage: Stage, step: Step) -> None:
    """Make node 2 take `step`."""
    role, to = step
    match to:
        case Role.FENCED if role is Role.HALTED:  # a halted replica is fenced by the next epoch
            claim_newer_epoch(stage)
            stage.configure(FIRST[Role.JOINING](3), 2)
        case Role.FENCED:
            claim_newer_epoch(stage)
        case Role.HALTED if role is Role.RECOVERING:  # another process began this epoch
            stage[2].fill(3)
            stage.configure(FIRST[Role.RECOVERING](3), 2)
        case Role.HALTED:
            truncate_what_is_committed(stage)
        case Role.FOLLOWING | Role.LEADING:
            stage.configure(FIRST[role](2))
            stage.run()
        case _:
            stage.configure(FIRST[to](6), 2)


@pytest.fixture
def steps_taken(monkeypatch: pytest.MonkeyPatch) -> list[Step]:
    """Every change of a role, as it happens."""
    taken: list[Step] = []

    def become(self: ReplicaState, role: Role) -> None:
        before = self.role
        found(self, role)
        taken.append((before, role))

    found = ReplicaState.become
    monkeypatch.setattr(ReplicaState, "become", become)
    return taken


@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step[0]}-{step[1]}")
def test_every_step_of_the_table_is_reached(step: Step, steps_taken: list[Step]) -> None:
    """V15: chain.T1; a row that nothing needs would hide a bug."""
    stage = in_role(step[0])
    steps_taken.clear()
    take(stage, step)
    assert step in steps_taken
    assert stage[2].replica.role is step[1]


def test_a_step_that_is_not_in_the_table_is_a_bug() -> None:
    """V15: chain.T1; only a recovered replica leads, only a joined one follows."""
    refused = 0
    for current, target in product(Role, Role):
        if target is current or target in NEXT[current]:
            assert advance(current, target) is target
            continue
        refused += 1
        with pytest.raises(AssertionError, match=f"from {current} to {target}"):
            advance(current, target)
    assert refused == 15
    assert {role for role in Role if Role.LEADING in NEXT[role]} == {Role.RECOVERING}
    assert {role for role in Role if Role.FOLLOWING in NEXT[role]} == {Role.JOINING}


def test_worlds_take_no_other_step(steps_taken: list[Step]) -> None:
    """V22: chain.T1; under faults, and most of the table."""
    for seed in range(20):
        ChainWorld(seed).run()
    taken = {step for step in steps_taken if step[0] is not step[1]}
    assert taken <= set(STEPS)
    assert len(taken) > len(STEPS) // 2


def test_the_rows_of_the_docstring_are_the_table() -> None:
    """The documented table is the one in the code."""
    assert roles.__doc__ is not None
    rows = re.findall(r"^    (\w+) +->  (.*?) ?\*$", roles.__doc__, re.MULTILINE)
    written = {Role(role): frozenset(map(Role, filter(None, to.split(", ")))) | FIRST.keys()
               for role, to in rows}
    assert written == NEXT


def test_a_wrong_claim_leaves_the_steps_to_a_role_as_they_are() -> None:
    """V15: chain.F2, chain.T1; a leader that was fenced recovers again, from its own log."""
    stage = in_role(Role.LEADING)
    claim_newer_epoch(stage)
    replica = stage[2].replica
    assert replica.role is Role.FENCED
    stage[2].happens(EpochConfirmed(Epoch(2), replica.fence.claim_count))
    assert replica.role is Role.LEADING

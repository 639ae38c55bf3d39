"""Each bug that is planted here is found by a checker of the world, under its name."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest

from quipu.chain import history, outbound, state
from quipu.chain.effects import Effect, ReportInSync, Restart, TruncateTo
from quipu.chain.inbound import Inbound
from quipu.chain.messages import FAR, OPEN, RESTART, TRUNCATE, Mark, Replicate
from quipu.chain.outbound import Outbound
from quipu.chain.recovery import Recovery
from quipu.chain.relay import Relay
from quipu.chain.replica import Replica
from quipu.chain.roles import Role
from quipu.chain.state import ReplicaState
from quipu.model.chains import MemberState
from quipu.model.ids import LogOffset, NodeId, Offset
from quipu.sim.world import Violation
from quipu.sim.worlds.chain import ChainNode, ChainWorld

SEEDS_MAX = 300
Patch = pytest.MonkeyPatch


def acknowledge_before_append(patch: Patch) -> None:
    """chain.C2: what a node was sent is taken for what it has."""
    def ahead(self: ReplicaState) -> Mark:
        end = self.end
        return Mark(LogOffset(end.log + 2), Offset(end.offset + 2)) if end.log else end

    patch.setattr(ReplicaState, "durable", property(ahead))


def acknowledge_before_flush(patch: Patch) -> None:
    """What was written is taken for durable."""
    patch.setattr(ReplicaState, "durable", ReplicaState.end)


def skip_the_epoch_before(patch: Patch) -> None:
    """chain.I2: batches are appended if the ends are the same, whatever the histories are."""
    def careless(self: Inbound, message: Replicate) -> tuple[list[Effect], bool]:
        if message.flags & (TRUNCATE | RESTART) or not message.flags & OPEN:
            return found(self, message)
        if message.prev_end != self._state.log.log_end:
            return self._reject(message.session), False
        self.session = message.session
        return self._take(message)

    found = Inbound._open
    patch.setattr(Inbound, "_open", careless)

    def replicate(self: Inbound, message: Replicate) -> tuple[list[Effect], bool]:
        return whole(self, message._replace(prev_epoch=self._state.log.last_epoch))

    whole = Inbound.replicate
    patch.setattr(Inbound, "replicate", replicate)
    patch.setattr(history, "common_end", lambda _mine, my_end, _theirs, their_end:
                  min(my_end, their_end))


def truncate_what_is_committed(patch: Patch) -> None:
    """chain.I3: a log is truncated whatever of it is committed."""
    def truncate(self: Inbound, message: Replicate) -> list[Effect]:
        self._truncated_session, self.is_truncating = message.session, True
        return [TruncateTo(message.prev_end)]

    def restart(self: Inbound, message: Replicate) -> list[Effect]:
        self._truncated_session, self.is_truncating = message.session, True
        return [Restart(message.prev_end, message.entries)]

    patch.setattr(Inbound, "_truncate", truncate)
    patch.setattr(Inbound, "_restart", restart)


def serve_before_the_configuration(patch: Patch) -> None:
    """chain.C1: a member serves as soon as the controller says so."""
    def announce(self: Relay) -> list[Effect]:
        self._state.is_serving = self._state.member_state is MemberState.SERVING
        return announced(self)

    announced = Relay.announce
    patch.setattr(Relay, "announce", announce)


def forget_fencing(patch: Patch) -> None:
    """chain.C4: the epoch of a message is not compared."""
    receive = Replica._receive

    def deaf(self: Replica, sender: NodeId, message: Any) -> list[Effect]:
        return receive(self, sender, message._replace(epoch=self._state.epoch))

    patch.setattr(Replica, "_receive", deaf)


def require_nobody(patch: Patch) -> None:
    """A node acknowledges what it has itself, whatever its successor has."""
    def uncounted(self: Outbound, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        self.is_required = False

    made = Outbound.__init__
    patch.setattr(Outbound, "__init__", uncounted)


def report_too_early(patch: Patch) -> None:
    """chain.C5: a syncing member is reported at its first Ack."""
    def eager(self: Relay, outbound: Outbound) -> list[Effect]:
        if outbound.is_serving or outbound.is_reported:
            return []
        outbound.is_required = outbound.is_reported = True
        return [ReportInSync(outbound.to, self._state.members.version)]

    patch.setattr(Relay, "_check_in_sync", eager)


def report_and_forget(patch: Patch) -> None:
    """The Ack of a reported member is not required."""
    def forgetful(self: Relay, outbound: Outbound) -> list[Effect]:
        effects = check(self, outbound)
        if outbound.is_reported:
            outbound.is_required = False
        return effects

    check = Relay._check_in_sync
    patch.setattr(Relay, "_check_in_sync", forgetful)


def commit_what_the_sender_has(patch: Patch) -> None:
    """chain.C3: the sender's end is taken for the commit point."""
    def note(self: Inbound, message: Replicate) -> None:
        noted(self, message)
        self.committed = FAR

    noted = Inbound._note
    patch.setattr(Inbound, "_note", note)


def commit_before_others_flush(patch: Patch) -> None:
    """The tail commits what it has, though nodes before it may still lose it."""
    def replicate(self: Inbound, message: Replicate) -> tuple[list[Effect], bool]:
        return whole(self, message._replace(durable=FAR))

    whole = Inbound.replicate
    patch.setattr(Inbound, "replicate", replicate)


def keep_old_acknowledgements(patch: Patch) -> None:
    """chain.N2: what was acknowledged in one epoch stays acknowledged in the next."""
    def begin(self: Replica, replica_set: Any) -> list[Effect]:
        before = self._state.acknowledged
        effects = whole(self, replica_set)
        self._state.acknowledged = before
        return effects

    whole = Replica._begin_epoch
    patch.setattr(Replica, "_begin_epoch", begin)


def truncate_by_length_alone(patch: Patch) -> None:
    """Two logs are taken to be the same up to the end of the shorter one."""
    patch.setattr(history, "common_end", lambda _mine, my_end, _theirs, their_end:
                  min(my_end, their_end))
    patch.setattr(outbound, "epoch_before", lambda _history, _position: -1)


def truncate_whoever_is_ahead(patch: Patch) -> None:
    """chain.O4: a member that is behind truncates the next one to its own length."""
    def opening(log: Any, other: Any) -> Any:
        found = find(log, other)
        if found is None and other.log_end > log.log_end > 0:
            return history.Opening(LogOffset(log.log_end), OPEN | TRUNCATE)
        return found

    find = outbound.find_opening
    patch.setattr(outbound, "find_opening", opening)


def go_on_after_a_restart(patch: Patch) -> None:
    """A new process is given the configuration that was made for the one before it."""
    def notification(self: ChainWorld, node: ChainNode, replica_set: Any, life: int | None,
                ) -> Callable[[], None]:
        return found(self, node, replica_set, None)

    found = ChainWorld._notification
    def boot(self: ChainNode) -> None:
        booted(self)
        self.world.publish()

    def halt(self: Replica, reason: str) -> list[Effect]:
        return self._serve_if_current() if "another process" in reason else halted(self, reason)

    booted, halted = ChainNode.boot, Replica._halted
    patch.setattr(Replica, "_halted", halt)
    patch.setattr(ChainWorld, "_notification", notification)
    patch.setattr(ChainNode, "boot", boot)


def begin_an_epoch_without_asking(patch: Patch) -> None:
    """A new head chooses its own log, takes all of it for committed, and truncates the others."""
    patch.setattr(Recovery, "missing", property(lambda _self: []))

    def choose(self: Recovery) -> None:
        self.source = self._state.node_id
        self._state.committed = self._state.end

    patch.setattr(Recovery, "choose", choose)


def lead_without_recovering(patch: Patch) -> None:
    """chain.T1: every serving member that has the epoch's configuration leads."""
    def become(self: ReplicaState, role: Role) -> None:
        found(self, Role.LEADING if role is Role.FOLLOWING else role)

    found = ReplicaState.become
    patch.setattr(ReplicaState, "become", become)


def leave_the_table(patch: Patch) -> None:
    """chain.T1: the same, and the table of roles is not checked."""
    lead_without_recovering(patch)
    patch.setattr(state, "advance", lambda _current, target: target)


class Bug(NamedTuple):
    plant: Callable[[Patch], None]
    names: str  # of the checkers that may find it first
    seed: int = 0  # where the search begins; rare ones take many worlds


BUGS = [
    Bug(acknowledge_before_append, "committed-grows committed-everywhere in-process sound"),
    Bug(acknowledge_before_flush, "committed-everywhere acknowledged-stays in-process"),
    Bug(skip_the_epoch_before, "log-matching log-refuses sound"),
    Bug(truncate_what_is_committed, "no-cut", 10),
    Bug(serve_before_the_configuration, "serves-its-epoch sound"),
    Bug(forget_fencing, "committed-everywhere committed-grows acknowledged-stays sound"),
    Bug(require_nobody, "committed-everywhere"),
    Bug(report_too_early, "acknowledged-stays"),
    Bug(report_and_forget, "acknowledged-stays"),
    Bug(commit_what_the_sender_has, "committed-everywhere"),
    Bug(commit_before_others_flush, "committed-everywhere"),
    Bug(keep_old_acknowledgements, "sound committed-everywhere", 210),
    Bug(truncate_by_length_alone, "log-matching log-refuses convergence sound"),
    Bug(truncate_whoever_is_ahead, "halted no-cut", 520),
    Bug(go_on_after_a_restart, "one-head log-matching acknowledged-stays committed-everywhere"),
    Bug(lead_without_recovering, "sound"),
    Bug(leave_the_table, "one-head"),
    Bug(begin_an_epoch_without_asking, "committed-everywhere committed-grows halted"),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.plant.__name__)
def test_a_planted_bug_is_found(bug: Bug, monkeypatch: Patch) -> None:
    """V22: the invariants are checked, not assumed."""
    bug.plant(monkeypatch)
    if "sound" not in bug.names.split():  # the world's checkers must find it by themselves
        monkeypatch.setattr(Replica, "invariants", lambda _self: None)
        monkeypatch.setattr(Relay, "offset_invariants", lambda _self, _log_end: None)
    found = find(range(bug.seed, bug.seed + SEEDS_MAX))

    assert found is not None, f"{SEEDS_MAX} worlds did not notice: {bug.plant.__doc__}"
    assert found.split(":", maxsplit=1)[0] in bug.names.split(), found


def find(seeds: Iterable[int]) -> str | None:
    """Return what the first world that fails reports."""
    for seed in seeds:
        try:
            ChainWorld(seed).run()
        except Violation as violation:
            return f"{violation} (seed {seed})"
    return None

"""The checkers bite: each bug that is planted here is found by the world, under its name."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest

from quipu.chain import history, outbound
from quipu.chain.effects import CutTo, Effect, ReportInSync, Restart
from quipu.chain.flow import Flow
from quipu.chain.inbound import Inbound
from quipu.chain.messages import CUT, FAR, OPEN, RESTART, Mark, Replicate
from quipu.chain.outbound import Outbound
from quipu.chain.recovery import Recovery
from quipu.chain.replica import Replica
from quipu.chain.standing import Standing
from quipu.model.chains import MemberState, ReplicaSet
from quipu.model.ids import LogOffset, NodeId, Offset
from quipu.sim.chain_world import ChainNode, ChainWorld
from quipu.sim.world import Violation

SEEDS_MAX = 300
Patch = pytest.MonkeyPatch


def acknowledge_before_append(patch: Patch) -> None:
    """What a node was sent is taken for what it has."""
    def ahead(self: Standing) -> Mark:
        end = self.end
        return Mark(LogOffset(end.log + 2), Offset(end.offset + 2)) if end.log else end

    patch.setattr(Standing, "durable", property(ahead))


def acknowledge_before_flush(patch: Patch) -> None:
    """What was written is taken for durable."""
    patch.setattr(Standing, "durable", Standing.end)


def skip_the_epoch_before(patch: Patch) -> None:
    """Batches are taken wherever the ends meet, whatever the histories are."""
    def careless(self: Inbound, message: Replicate) -> tuple[list[Effect], bool]:
        if message.flags & (CUT | RESTART) or not message.flags & OPEN:
            return found(self, message)
        if message.prev_end != self._standing.log.log_end:
            return self._refuse(message.session), False
        self.session = message.session
        return self._take(message)

    found = Inbound._open
    patch.setattr(Inbound, "_open", careless)

    def replicate(self: Inbound, message: Replicate) -> tuple[list[Effect], bool]:
        return whole(self, message._replace(prev_epoch=self._standing.log.last_epoch))

    whole = Inbound.replicate
    patch.setattr(Inbound, "replicate", replicate)
    patch.setattr(history, "common_end", lambda _mine, my_end, _theirs, their_end:
                  min(my_end, their_end))


def cut_what_is_committed(patch: Patch) -> None:
    """Nobody asks what is committed before a log is cut."""
    def cut(self: Inbound, message: Replicate) -> list[Effect]:
        self._spent, self.is_cutting = message.session, True
        return [CutTo(message.prev_end)]

    def restart(self: Inbound, message: Replicate) -> list[Effect]:
        self._spent, self.is_cutting = message.session, True
        return [Restart(message.entries)]

    patch.setattr(Inbound, "_cut", cut)
    patch.setattr(Inbound, "_restart", restart)


def serve_before_the_configuration(patch: Patch) -> None:
    """A member serves as soon as the controller says so."""
    def greet(self: Replica, replica_set: ReplicaSet) -> list[Effect]:
        self._is_serving = self._standing.state is MemberState.SERVING
        return greeted(self, replica_set)

    greeted = Replica._greet
    patch.setattr(Replica, "_greet", greet)


def forget_fencing(patch: Patch) -> None:
    """The epoch of a message is not looked at."""
    receive = Replica._receive

    def deaf(self: Replica, sender: NodeId, message: Any) -> list[Effect]:
        return receive(self, sender, message._replace(epoch=self._standing.epoch))

    patch.setattr(Replica, "_receive", deaf)


def count_nobody(patch: Patch) -> None:
    """A node acknowledges what it has itself, whatever comes after it."""
    def uncounted(self: Outbound, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        self.is_counted = False

    made = Outbound.__init__
    patch.setattr(Outbound, "__init__", uncounted)


def report_too_early(patch: Patch) -> None:
    """A syncing member is reported as soon as it says anything."""
    def eager(self: Flow, link: Outbound) -> list[Effect]:
        if link.is_serving or link.is_reported:
            return []
        link.is_counted = link.is_reported = True
        return [ReportInSync(link.to, self._standing.members.version)]

    patch.setattr(Flow, "_weigh", eager)


def report_and_forget(patch: Patch) -> None:
    """A reported member is not waited for."""
    def forgetful(self: Flow, link: Outbound) -> list[Effect]:
        effects = weigh(self, link)
        if link.is_reported:
            link.is_counted = False
        return effects

    weigh = Flow._weigh
    patch.setattr(Flow, "_weigh", forgetful)
    patch.setattr(Flow, "invariants", lambda _self: None)


def commit_what_the_sender_has(patch: Patch) -> None:
    """The sender's end is taken for the commit point."""
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


def keep_old_claims(patch: Patch) -> None:
    """What was acknowledged in one epoch is acknowledged in the next, be it there or not."""
    def begin(self: Replica, replica_set: Any) -> list[Effect]:
        claimed = self._standing.claimed
        effects = whole(self, replica_set)
        self._standing.claimed = claimed
        return effects

    whole = Replica._begin_epoch
    patch.setattr(Replica, "_begin_epoch", begin)


def cut_by_length_alone(patch: Patch) -> None:
    """Two logs are taken for the same as far as both go."""
    patch.setattr(history, "common_end", lambda _mine, my_end, _theirs, their_end:
                  min(my_end, their_end))
    patch.setattr(outbound, "epoch_before", lambda _history, _position: -1)


def cut_whoever_is_ahead(patch: Patch) -> None:
    """A member that is behind cuts the next one down to its own length."""
    def opening(log: Any, other: Any) -> Any:
        found = find(log, other)
        if found is None and other.log_end > log.log_end > 0:
            return history.Opening(LogOffset(log.log_end), OPEN | CUT)
        return found

    find = outbound.find_opening
    patch.setattr(outbound, "find_opening", opening)


def go_on_after_a_restart(patch: Patch) -> None:
    """A new process is given the configuration that was made for the one before it."""
    def telling(self: ChainWorld, node: ChainNode, replica_set: Any, life: int | None,
                ) -> Callable[[], None]:
        return told(self, node, replica_set, None)

    told = ChainWorld._telling
    def boot(self: ChainNode) -> None:
        booted(self)
        self.world.publish()

    def halt(self: Replica, reason: str) -> list[Effect]:
        return self._refresh() if "another process" in reason else halted(self, reason)

    booted, halted = ChainNode.boot, Replica._halted
    patch.setattr(Replica, "_halted", halt)
    patch.setattr(ChainWorld, "_telling", telling)
    patch.setattr(ChainNode, "boot", boot)


def begin_an_epoch_without_asking(patch: Patch) -> None:
    """A new head takes its own log, and what it has is what counts; others are cut."""
    patch.setattr(Recovery, "missing", property(lambda _self: []))

    def choose(self: Recovery) -> None:
        self.source = self._standing.node_id
        self._standing.committed = self._standing.end

    patch.setattr(Recovery, "choose", choose)


class Bug(NamedTuple):
    plant: Callable[[Patch], None]
    names: str  # of the checkers that may find it first
    seed: int = 0  # where the search begins; rare ones take many worlds


BUGS = [
    Bug(acknowledge_before_append, "committed-grows committed-everywhere in-process sound"),
    Bug(acknowledge_before_flush, "committed-everywhere acknowledged-stays in-process"),
    Bug(skip_the_epoch_before, "log-matching log-refuses sound"),
    Bug(cut_what_is_committed, "no-cut", 10),
    Bug(serve_before_the_configuration, "serves-its-epoch sound"),
    Bug(forget_fencing, "committed-everywhere committed-grows acknowledged-stays sound"),
    Bug(count_nobody, "committed-everywhere"),
    Bug(report_too_early, "acknowledged-stays"),
    Bug(report_and_forget, "acknowledged-stays"),
    Bug(commit_what_the_sender_has, "committed-everywhere"),
    Bug(commit_before_others_flush, "committed-everywhere"),
    Bug(keep_old_claims, "sound committed-everywhere", 210),
    Bug(cut_by_length_alone, "log-matching log-refuses convergence sound"),
    Bug(cut_whoever_is_ahead, "halted no-cut", 520),
    Bug(go_on_after_a_restart, "one-head log-matching acknowledged-stays committed-everywhere"),
    Bug(begin_an_epoch_without_asking, "committed-everywhere committed-grows halted"),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.plant.__name__)
def test_a_planted_bug_is_found(bug: Bug, monkeypatch: Patch) -> None:
    """V22: the invariants are checked, not assumed."""
    bug.plant(monkeypatch)
    found = find(range(bug.seed, bug.seed + SEEDS_MAX))

    assert found is not None, f"{SEEDS_MAX} worlds did not notice: {bug.plant.__doc__}"
    assert found.split(":", maxsplit=1)[0] in bug.names.split(), found


def find(seeds: Iterable[int]) -> str | None:
    """What is wrong in the first world in which something is."""
    for seed in seeds:
        try:
            ChainWorld(seed).run()
        except Violation as violation:
            return f"{violation} (seed {seed})"
    return None

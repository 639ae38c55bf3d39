"""Scenes: requests that need the responses of earlier ones.

A scene is a generator: it yields steps, and gets back the two outcomes of each.  It leaves groups
without members, so that any other request may follow.

    member_of_a_group    one member joins, syncs, works, and leaves; wrong ids and generations too
    two_members          a second member joins: the first has to join again
    fetch_session        an incremental session: begun, changed, misused, closed
"""

import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from quipu.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from quipu.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from quipu.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from quipu.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from quipu.wire.messages.k12_heartbeat import HeartbeatRequest
from quipu.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from quipu.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from quipu.wire.messages.k15_describe_groups import DescribeGroupsRequest
from quipu.wire.messages.k16_list_groups import ListGroupsRequest
from quipu.wire.messages.k42_delete_groups import DeleteGroupsRequest
from tests.differential.both import Both
from tests.differential.connections import NoResponse, Outcome
from tests.differential.steps import Step
from tests.differential.world import GROUPS, World

if TYPE_CHECKING:
    from tests.differential.run import Run

Pair = tuple[Outcome, Outcome]
Scene = Callable[["Run"], Generator[Step, Pair, None]]
TIMEOUT_MS = 60_000
STATIC_SINCE, LEAVE_MANY_SINCE, PROTOCOL_SINCE = 5, 3, 5
WAIT_SECONDS_MAX = 5.0


def _both(pair: Pair, field: str) -> Both:
    """The values of a field in two responses."""
    return Both(*(getattr(side, field, "" if field == "member_id" else -1) for side in pair))


def _failed(pair: Pair) -> bool:
    return any(isinstance(side, NoResponse) or getattr(side, "error_code", 0) for side in pair)


class _Member:
    """One member of a group, over a connection of its own."""

    def __init__(self, run: "Run", group: str, connection: int, instance: str | None) -> None:
        self.run, self.group, self.connection, self.instance = run, group, connection, instance
        self.world: World = run.world
        self.member_id: Any = ""
        self.generation: Any = -1
        self.protocol_type = "consumer"

    def version(self, key: int, least: int = 0) -> int:
        if self.instance is not None:
            least = max(least, {11: 5, 8: 7, 12: 3, 14: 3, 13: 3}[key])
        return self.world.pick_of([each for each in self.run.both[key] if each >= least])

    def join(self, least: int = 0) -> Step:
        topics = ConsumerProtocolSubscription(topics=["plain"])
        return Step(JoinGroupRequest(
            group_id=self.group, session_timeout=TIMEOUT_MS, rebalance_timeout=TIMEOUT_MS,
            member_id=self.member_id, group_instance_id=self.instance,
            protocol_type=self.protocol_type, protocols=[JoinGroupRequestProtocol(
                name="range", metadata=b"\0\0" + topics.encode(0))],
        ), self.version(11, least), connection=self.connection)

    def sync(self, assignments: list[Any], **wrong: Any) -> Step:
        values: dict[str, Any] = {
            "generation_id": self.generation, "member_id": self.member_id,
            "protocol_type": self.protocol_type, "protocol_name": "range", **wrong}
        return Step(SyncGroupRequest(
            group_id=self.group, group_instance_id=self.instance, assignments=[
                SyncGroupRequestAssignment(member_id=each, assignment=b"share")
                for each in assignments], **values),
            self.version(14), connection=self.connection)

    def heartbeat(self, **wrong: Any) -> Step:
        values = {"generation_id": self.generation, "member_id": self.member_id, **wrong}
        return Step(HeartbeatRequest(
            group_id=self.group, group_instance_id=self.instance, **values),
            self.version(12), connection=self.connection)

    def commit(self, **wrong: Any) -> Step:
        values = {"generation_id_or_member_epoch": self.generation, "member_id": self.member_id,
                  **wrong}
        version = self.version(8)
        topic = self.run.world.topics["plain"].topic_id
        return Step(OffsetCommitRequest(
            group_id=self.group, group_instance_id=self.instance, topics=[
                OffsetCommitRequestTopic(
                    name="plain", topic_id=topic,  # type: ignore[arg-type]  # resolved later
                    partitions=[OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=self.world.pick(0, 3, 9))])],
            **values), version, connection=self.connection)

    def leave(self) -> Step:
        version = self.version(13)
        if version < LEAVE_MANY_SINCE:
            return Step(LeaveGroupRequest(group_id=self.group, member_id=self.member_id),
                        version, connection=self.connection)
        by_instance = self.instance is not None and self.world.chance(0.5)
        return Step(LeaveGroupRequest(group_id=self.group, members=[MemberIdentity(
            member_id="" if by_instance else self.member_id, group_instance_id=self.instance)]),
            version, connection=self.connection)

    def is_in(self, pair: Pair) -> bool:
        """Take over what a response to a join says; whether the member is in."""
        self.member_id = _both(pair, "member_id")
        self.generation = _both(pair, "generation_id")
        return not _failed(pair)

    def joined(self) -> Generator[Step, Pair, bool]:
        """Join alone; from v4 on a member learns its id first."""
        if self.is_in((yield self.join())):
            return True
        return self.is_in((yield self.join(4)))


def _describe(run: "Run", group: str) -> Step:
    return Step(DescribeGroupsRequest(
        groups=[group], include_authorized_operations=run.world.chance(0.5)),
        run.world.pick_of(run.both[15]))


def member_of_a_group(run: "Run") -> Generator[Step, Pair, None]:
    """One member: joins, syncs, works, and leaves."""
    world = run.world
    group = world.pick_of(GROUPS)
    member = _Member(run, group, 1, world.mostly((None,), ("static-1",), odds=0.3))
    if not (yield from member.joined()):
        return
    wrong: tuple[dict[str, Any], ...] = ({}, {"generation_id": 77}, {"member_id": "nobody"})
    yield member.sync([member.member_id], **world.pick_of(wrong))
    if world.chance(0.3):
        yield _describe(run, group)
    if world.chance(0.3):
        yield member.sync([member.member_id], protocol_name=world.pick("another", None))
    yield member.sync([member.member_id])
    probes: list[Callable[[], Step]] = [
        member.heartbeat, lambda: member.heartbeat(generation_id=99),
        lambda: member.heartbeat(member_id="nobody"), member.commit,
        lambda: member.commit(generation_id_or_member_epoch=99),
        lambda: member.commit(member_id="nobody"),
        lambda: member.commit(member_id="", generation_id_or_member_epoch=-1),
        lambda: _describe(run, group), lambda: member.sync([]),
        lambda: Step(ListGroupsRequest(), world.pick_of(run.both[16])),
        lambda: Step(DeleteGroupsRequest(groups_names=[group]), world.pick_of(run.both[42]))]
    for probe in world.dice.sample(probes, 5):
        yield probe()
    if world.chance(0.4):
        if not member.is_in((yield member.join(4))):
            return
        yield member.sync([member.member_id])
    yield member.leave()
    yield _describe(run, group)


def two_members(run: "Run") -> Generator[Step, Pair, None]:
    """A second member joins; the first has to join again, and both leave."""
    group = run.world.pick_of(GROUPS)
    first, second = _Member(run, group, 1, None), _Member(run, group, 2, "static-2")
    if not (yield from first.joined()):
        return
    yield first.sync([first.member_id])
    end_second = run.begin_step(second.join())
    until = time.monotonic() + WAIT_SECONDS_MAX
    while time.monotonic() < until:
        yield Step(HeartbeatRequest(group_id=group, member_id="nobody"), 0)
        states = run.ask_quietly(_describe(run, group))
        if all(state == "PreparingRebalance" for state in states):
            break
    yield first.heartbeat()
    yield first.commit()
    is_in = first.is_in((yield first.join(4)))
    if not (second.is_in(end_second()) and is_in):
        return
    end_second = run.begin_step(second.sync([]))
    yield first.sync([first.member_id, second.member_id])
    end_second()
    yield _describe(run, group)
    yield second.leave()
    yield first.heartbeat()
    yield first.leave()
    yield second.leave()  # a static member may still be there
    yield _describe(run, group)


def fetch_session(run: "Run") -> Generator[Step, Pair, None]:
    """An incremental fetch session."""
    world = run.world
    version = world.pick_of([each for each in run.both[1] if each >= 7])

    def topic_id(name: str) -> Any:
        return world.topics[name].topic_id

    def fetch(session: Any, epoch: int, names: list[str], forgotten: list[Any]) -> Step:
        return Step(FetchRequest(
            max_wait=0, min_bytes=0, session_id=session, session_epoch=epoch,
            forgotten_topics_data=forgotten, topics=[
                FetchTopic(topic=name, topic_id=topic_id(name), partitions=[
                    FetchPartition(partition=0, fetch_offset=world.pick(0, 10, 12),
                                   partition_max_bytes=1 << 20)]) for name in names]),
            version, connection=1)

    pair = yield fetch(0, 0, ["plain", "stamped"], [])
    session = _both(pair, "session_id")
    if _failed(pair) or 0 in session:
        return
    yield fetch(session, 1, [], [])
    yield fetch(session, 2, world.pick([], ["wide"], ["plain"]), [])
    yield fetch(session, world.pick(3, 9, 1), [], [])
    yield fetch(session, -1, [], [])
    yield fetch(session, 4, [], [])


SCENES: tuple[Scene, ...] = (
    member_of_a_group, member_of_a_group, two_members, fetch_session, fetch_session)

"""Handlers of group membership as clients of each version see them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from quipu.broker.handlers import (
    k10_find_coordinator,
    k11_join_group,
    k12_heartbeat,
    k13_leave_group,
    k14_sync_group,
    k15_describe_groups,
    k16_list_groups,
    k42_delete_groups,
    k47_offset_delete,
)
from quipu.model.errors import Code, RequestError
from quipu.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from quipu.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from quipu.wire.messages.k12_heartbeat import HeartbeatRequest
from quipu.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from quipu.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from quipu.wire.messages.k15_describe_groups import DescribeGroupsRequest
from quipu.wire.messages.k16_list_groups import ListGroupsRequest
from quipu.wire.messages.k42_delete_groups import DeleteGroupsRequest
from quipu.wire.messages.k47_offset_delete import OffsetDeleteRequest
from tests.broker.clusters import versions
from tests.broker.groups.brokers import (
    Client,
    GroupBroker,
    GroupMemoryLog,
    a_group_broker,
    begun,
    two_members,
)


def run(test: Callable[[GroupBroker], Awaitable[None]]) -> None:
    async def with_broker() -> None:
        broker = await a_group_broker()
        await test(broker)
        await broker.groups.stop()

    asyncio.run(with_broker())


def a_join(**fields: Any) -> JoinGroupRequest:
    values: dict[str, Any] = {
        "group_id": "g", "session_timeout": 10_000, "rebalance_timeout": 30_000,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"me")]}
    return JoinGroupRequest(**values | fields)


async def join(broker: GroupBroker, version: int) -> Any:
    """Join as a client of this version does, with or without coming back."""
    response = await broker.ask(k11_join_group, a_join(), version)
    if version >= 4:
        assert response.error_code == Code.MEMBER_ID_REQUIRED
        assert response.member_id.startswith("test-")
        response = await broker.ask(k11_join_group, a_join(member_id=response.member_id), version)
    return response


@pytest.mark.parametrize("version", versions(FindCoordinatorRequest))
def test_this_node_coordinates_every_group(version: int) -> None:
    """K3: one key or several; transactions have none, and clients get a final error."""
    async def test(broker: GroupBroker) -> None:
        request = FindCoordinatorRequest(key="g", coordinator_keys=["g", "h"])
        response = await broker.ask(k10_find_coordinator, request, version)
        found = response.coordinators if version >= 4 else [response]
        assert [(c.error_code, c.node_id, c.host, c.port) for c in found] == [
            (0, 1, "kafka.test", 9092)] * len(found)
        if version >= 1:
            for key_type, code in [(1, 53 if version < 4 else 35), (2, 42)]:
                request.key_type = key_type
                response = await broker.ask(k10_find_coordinator, request, version)
                found = response.coordinators if version >= 4 else [response]
                assert {(c.error_code, c.node_id) for c in found} == {(code, -1)}
                assert all(c.error_message for c in found)

    run(test)


@pytest.mark.parametrize("version", versions(JoinGroupRequest))
def test_joining_in_every_version(version: int) -> None:
    """K3: a single member leads, and gets itself as the only member."""
    async def test(broker: GroupBroker) -> None:
        response = await join(broker, version)
        assert (response.error_code, response.generation_id) == (0, 1)
        assert response.protocol_name == "range"
        assert response.leader == response.member_id
        assert [(m.member_id, m.metadata) for m in response.members] == [
            (response.member_id, b"me")]
        assert response.protocol_type == ("consumer" if version >= 7 else None)

    run(test)


@pytest.mark.parametrize(("fields", "code"), [
    ({"group_id": ""}, Code.INVALID_GROUP_ID),
    ({"session_timeout": 5_999}, Code.INVALID_SESSION_TIMEOUT),
    ({"session_timeout": 1_800_001}, Code.INVALID_SESSION_TIMEOUT),
    ({"member_id": "who"}, Code.UNKNOWN_MEMBER_ID),
    ({"protocols": []}, Code.INCONSISTENT_GROUP_PROTOCOL),
    ({"protocol_type": ""}, Code.INCONSISTENT_GROUP_PROTOCOL),
    ({"protocols": [JoinGroupRequestProtocol(name="range", metadata=b"x" * (1 << 20))]},
     Code.INVALID_REQUEST),
])
@pytest.mark.parametrize("version", [0, 6, 9])
def test_a_join_that_cannot_be(version: int, fields: dict[str, Any], code: Code) -> None:
    """K3, K8: each with its code, and in a form that every version can carry."""
    async def test(broker: GroupBroker) -> None:
        response = await broker.ask(k11_join_group, a_join(**fields), version)
        assert response.error_code == code
        assert (response.generation_id, response.leader, response.members) == (-1, "", [])
        assert response.protocol_name == ("" if version < 7 else None)

    run(test)


def test_the_oldest_clients_have_one_timeout() -> None:
    """K3: v0 has no rebalance timeout; the session timeout is used, also for an invalid one."""
    async def test(broker: GroupBroker) -> None:
        await broker.ask(k11_join_group, a_join(), 0)
        await broker.ask(k11_join_group, a_join(group_id="h", rebalance_timeout=-5), 1)
        timeouts = [m.rebalance_timeout_ms for g in broker.groups.all() for m in g.members]
        assert timeouts == [10_000, 10_000]

    run(test)


@pytest.mark.parametrize("version", versions(SyncGroupRequest))
def test_syncing_in_every_version(version: int) -> None:
    """K3: v5 checks the protocol that the client believes in."""
    async def test(broker: GroupBroker) -> None:
        joined = await join(broker, 9)
        request = SyncGroupRequest(
            group_id="g", generation_id=1, member_id=joined.member_id, protocol_type="connect",
            protocol_name="range", assignments=[SyncGroupRequestAssignment(
                member_id=joined.member_id, assignment=b"mine")])
        if version >= 5:
            response = await broker.ask(k14_sync_group, request, version)
            assert response.error_code == Code.INCONSISTENT_GROUP_PROTOCOL
        request.protocol_type = "consumer"
        response = await broker.ask(k14_sync_group, request, version)
        assert (response.error_code, response.assignment) == (Code.NONE, b"mine")
        assert response.protocol_name == ("range" if version >= 5 else None)
        request.generation_id = 2
        response = await broker.ask(k14_sync_group, request, version)
        assert (response.error_code, response.assignment) == (Code.ILLEGAL_GENERATION, b"")

    run(test)


@pytest.mark.parametrize("version", versions(HeartbeatRequest))
def test_heartbeats_in_every_version(version: int) -> None:
    """K3: alive, wrong generation, unknown."""
    async def test(broker: GroupBroker) -> None:
        joined = await join(broker, 9)
        for generation, member_id, group_id, code in [
            (1, joined.member_id, "g", Code.NONE),
            (2, joined.member_id, "g", Code.ILLEGAL_GENERATION),
            (1, "who", "g", Code.UNKNOWN_MEMBER_ID),
            (1, joined.member_id, "h", Code.UNKNOWN_MEMBER_ID),
            (1, joined.member_id, "", Code.INVALID_GROUP_ID),
        ]:
            response = await broker.ask(k12_heartbeat, HeartbeatRequest(
                group_id=group_id, generation_id=generation, member_id=member_id), version)
            assert response.error_code == code

    run(test)


@pytest.mark.parametrize("version", versions(LeaveGroupRequest))
def test_leaving_in_every_version(version: int) -> None:
    """K3: one member, or several with a code for each."""
    async def test(broker: GroupBroker) -> None:
        joined = await join(broker, 9)
        request = LeaveGroupRequest(
            group_id="g", member_id=joined.member_id,
            members=[MemberIdentity(member_id="who"), MemberIdentity(member_id=joined.member_id)])
        response = await broker.ask(k13_leave_group, request, version)
        assert response.error_code == Code.NONE
        if version >= 3:
            assert [m.error_code for m in response.members] == [Code.UNKNOWN_MEMBER_ID, Code.NONE]
        assert len(broker.groups.all()[0].members) == 0
        request.group_id = "none"
        response = await broker.ask(k13_leave_group, request, version)
        codes = [m.error_code for m in response.members] if version >= 3 else [response.error_code]
        assert set(codes) == {Code.UNKNOWN_MEMBER_ID}

    run(test)


@pytest.mark.parametrize("version", versions(DescribeGroupsRequest))
def test_describing_in_every_version(version: int) -> None:
    """K3: members with what they said and got; unknown groups are dead, or an error since v6."""
    async def test(broker: GroupBroker) -> None:
        first, second = await two_members(broker)
        response = await broker.ask(k15_describe_groups, DescribeGroupsRequest(
            groups=["g", "none"], include_authorized_operations=True), version)
        group, none = response.groups
        assert (group.error_code, group.group_state, group.protocol_type, group.protocol_data) == (
            0, "Stable", "consumer", "range")
        assert [(m.member_id, m.client_id, m.client_host) for m in group.members] == [
            (client.member_id, "test", "/::1") for client in (first, second)]
        assert [m.member_assignment for m in group.members] == [
            client.member_id.encode() for client in (first, second)]
        assert group.authorized_operations == (3400 if version >= 3 else -0x8000_0000)
        assert none.group_state == "Dead"
        assert none.error_code == (Code.GROUP_ID_NOT_FOUND if version >= 6 else Code.NONE)
        assert (none.error_message is not None) == (version >= 6)

    run(test)


@pytest.mark.parametrize("version", versions(ListGroupsRequest))
def test_listing_in_every_version(version: int) -> None:
    """K3: by state since v4, by type since v5."""
    async def test(broker: GroupBroker) -> None:
        await Client(broker, "b").enter()
        await Client(broker, "a").commit(1)

        async def listed(**filters: Any) -> list[tuple[str, str, str, str]]:
            response = await broker.ask(k16_list_groups, ListGroupsRequest(**filters), version)
            assert response.error_code == Code.NONE
            return [(g.group_id, g.protocol_type, g.group_state, g.group_type)
                    for g in response.groups]

        state = ("Empty", "Stable") if version >= 4 else ("", "")
        kind = "classic" if version >= 5 else ""
        a, b = ("a", "", state[0], kind), ("b", "consumer", state[1], kind)
        assert await listed() == [a, b]
        if version >= 4:
            assert await listed(states_filter=["stable", "Nonsense"]) == [b]
        if version >= 5:
            assert await listed(types_filter=["Classic"]) == [a, b]
            assert await listed(types_filter=["consumer"]) == []

    run(test)


@pytest.mark.parametrize("version", versions(DeleteGroupsRequest))
def test_deleting_in_every_version(version: int) -> None:
    """K3: groups with members stay; one that is deleted is gone for good."""
    async def test(broker: GroupBroker) -> None:
        await Client(broker, "used").enter()
        client = Client(broker, "left")
        await client.enter()
        await client.commit(5)
        await client.leave()
        await Client(broker, "simple").commit(6)
        response = await broker.ask(k42_delete_groups, DeleteGroupsRequest(
            groups_names=["used", "left", "none", "simple"]), version)
        assert [(r.group_id, r.error_code) for r in response.results] == [
            ("used", Code.NON_EMPTY_GROUP), ("left", Code.NONE),
            ("none", Code.GROUP_ID_NOT_FOUND), ("simple", Code.NONE)]
        for _ in range(2):
            assert await client.committed() == -1
            assert [group.group_id for group in broker.groups.all()] == ["used"]
            await broker.restart()

    run(test)


def test_a_deletion_that_is_not_kept_has_not_happened() -> None:
    """K3, K8: a client that gets an error finds the group and its offsets as they were."""
    async def test(broker: GroupBroker) -> None:
        client = Client(broker, "simple")
        assert await client.commit(6) == Code.NONE
        assert isinstance(broker.log, GroupMemoryLog)

        async def full() -> None:
            raise RequestError("no room", code=Code.KAFKA_STORAGE_ERROR)

        broker.log.before_append = full
        response = await broker.ask(k42_delete_groups, DeleteGroupsRequest(groups_names=["simple"]))
        assert response.results[0].error_code == Code.COORDINATOR_NOT_AVAILABLE
        broker.log.before_append = None
        for _ in range(2):
            assert await client.committed() == 6
            await broker.restart()

    run(test)


def test_what_comes_after_a_deletion_is_kept() -> None:
    """K3, K8: a commit or a member that comes while a deletion is written is behind it."""
    async def test(broker: GroupBroker) -> None:
        assert isinstance(broker.log, GroupMemoryLog)
        commits, joins = Client(broker, "commits"), Client(broker, "joins")
        for client in (commits, joins):
            await client.commit(6, partition=0)
            await client.commit(6, partition=1)
        written = asyncio.Event()

        async def wait() -> None:
            await written.wait()

        broker.log.before_append = wait
        deleting = await begun(broker.ask(
            k42_delete_groups, DeleteGroupsRequest(groups_names=["commits"])))
        also = await begun(broker.ask(
            k42_delete_groups, DeleteGroupsRequest(groups_names=["joins"])))
        committing, entering = await begun(commits.commit(7)), await begun(joins.enter())
        written.set()
        assert (await deleting).results[0].error_code == Code.NONE
        assert (await also).results[0].error_code == Code.NONE
        assert await committing == Code.NONE
        await entering
        for _ in range(2):
            assert [await commits.committed(partition=index) for index in (0, 1)] == [7, -1]
            assert [await joins.committed(partition=index) for index in (0, 1)] == [-1, -1]
            assert await joins.heartbeat() == Code.NONE
            await broker.restart()

    run(test)


def test_groups_of_other_kinds_work() -> None:
    """K3: a Connect cluster is a group too; its offsets stay while it has members."""
    async def test(broker: GroupBroker) -> None:
        response = await broker.ask(k11_join_group, a_join(protocol_type="connect"), 3)
        assert response.error_code == Code.NONE
        response = await broker.ask(k47_offset_delete, OffsetDeleteRequest(group_id="g"))
        assert response.error_code == Code.NON_EMPTY_GROUP
        response = await broker.ask(k11_join_group, a_join(), 3)
        assert response.error_code == Code.INCONSISTENT_GROUP_PROTOCOL

    run(test)


def test_a_stopping_node_sends_clients_away() -> None:
    """K10: every request gets an error that clients retry."""
    async def test(broker: GroupBroker) -> None:
        await broker.groups.stop()
        away = Code.COORDINATOR_NOT_AVAILABLE
        response = await broker.ask(k10_find_coordinator, FindCoordinatorRequest(key="g"), 3)
        assert response.error_code == away
        response = await broker.ask(k15_describe_groups, DescribeGroupsRequest(groups=["g"]))
        assert response.groups[0].error_code == away
        assert (await broker.ask(k16_list_groups, ListGroupsRequest())).error_code == away
        response = await broker.ask(k42_delete_groups, DeleteGroupsRequest(groups_names=["g"]))
        assert response.results[0].error_code == away
        response = await broker.ask(k13_leave_group, LeaveGroupRequest(
            group_id="g", members=[MemberIdentity(member_id="m")]))
        assert response.error_code == away

    run(test)

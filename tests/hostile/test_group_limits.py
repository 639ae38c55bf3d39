"""Groups, members and offsets without end: what is refused and kept, how long a start takes."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from quipu.model.errors import Code
from quipu.wire.frame import encode_request
from quipu.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from quipu.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from quipu.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from quipu.wire.messages.k11_join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from quipu.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from tests.harness.node import RunningNode
from tests.harness.raw import RawConnection
from tests.hostile.bystander import TOPIC, Bystander
from tests.hostile.conftest import MIB, anonymous_size
from tests.hostile.scrape import metrics

pytestmark = pytest.mark.xdist_group("hostile-groups")
WIDE = "wide"
WIDTH = 500  # partitions of it
OFFSETS_MAX = 100_000
GROUPS_MAX = 500
START_SECONDS_MAX = 30.0  # far above what it takes: test machines are busy
COMMIT_VERSION = 8
JOIN_VERSION = 5


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    settings = {
        "offsets.topic.num.partitions": "1",
        "offsets.max.count": str(OFFSETS_MAX),
        "group.max.offsets": str(OFFSETS_MAX),
        "group.max.count": str(GROUPS_MAX),
        "group.max.total.bytes": str(4 * MIB),
        "group.max.bytes": str(1 * MIB),
        "group.initial.rebalance.delay.ms": "0",
    }
    with RunningNode(tmp_path / "data", settings=settings) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        topics = [NewTopic(TOPIC, num_partitions=1), NewTopic(WIDE, num_partitions=WIDTH)]
        for future in admin.create_topics(topics).values():
            future.result(60)
        with connected(running) as connection:
            connection.ask(FindCoordinatorRequest(key="g"), 3)
        yield running


def connected(node: RunningNode, source: str = "") -> RawConnection:
    return RawConnection(node.host, node.port, timeout=60, source=source)


def commit(connection: RawConnection, group: str, offset: int, width: int = WIDTH) -> int:
    """Commit an offset of `width` partitions; the worst code of all."""
    parts = [OffsetCommitRequestPartition(
        partition_index=index, committed_offset=offset, committed_metadata="")
        for index in range(width)]
    answer = connection.ask(OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name=WIDE, partitions=parts)]),
        COMMIT_VERSION)
    assert isinstance(answer, OffsetCommitResponse)
    return max(part.error_code for part in answer.topics[0].partitions)


def committed(connection: RawConnection, group: str) -> int:
    answer = connection.ask(OffsetFetchRequest(group_id=group, topics=[
        OffsetFetchRequestTopics(name=WIDE, partition_indexes=[0])]), 6)
    assert isinstance(answer, OffsetFetchResponse)
    return answer.topics[0].partitions[0].committed_offset


def join(
    connection: RawConnection, group: str, protocols: list[tuple[str, bytes]] | None = None,
    member_id: str = "",
) -> JoinGroupResponse:
    answer = connection.ask(JoinGroupRequest(
        group_id=group, session_timeout=600_000, rebalance_timeout=600_000, member_id=member_id,
        protocol_type="consumer", protocols=[
            JoinGroupRequestProtocol(name=name, metadata=data)
            for name, data in protocols or [("range", b"")]]), JOIN_VERSION)
    assert isinstance(answer, JoinGroupResponse)
    return answer


def group_log_size(node: RunningNode) -> int:
    return sum(file.stat().st_size for file in
               (node.directory / "__consumer_offsets-0").glob("*.log"))


def restarted(node: RunningNode) -> float:
    """Kill it and start it again, as after a crash; how long that took."""
    node.kill()
    node.start(timeout=START_SECONDS_MAX * 2)
    print(f"started in {node.start_seconds:.2f} s, group log {group_log_size(node) / MIB:.1f} MiB")
    return node.start_seconds


def test_offsets_without_end(node: RunningNode) -> None:
    """K3, K8: they end at offsets.max.count; commits in a loop keep log and start bounded."""
    idle_seconds = restarted(node)
    with Bystander(node) as bystander, connected(node) as connection:
        groups = OFFSETS_MAX // WIDTH
        for number in range(groups):
            assert commit(connection, f"g{number}", 1) == Code.NONE
        for number in range(groups, groups + 20):
            assert commit(connection, f"g{number}", 1) == Code.INVALID_COMMIT_OFFSET_SIZE
        size_max = group_log_size(node)
        for turn in range(2, 1200):  # 600,000 offsets, each of them 50 bytes in the log
            assert commit(connection, f"g{turn % groups}", turn) == Code.NONE
            size_max = max(size_max, group_log_size(node))
        last = {f"g{turn % groups}": turn for turn in range(2, 1200)}
        print(f"group log of {size_max / MIB:.1f} MiB at most; {bystander.verdict()}")
    found = metrics(node)
    assert found["quipu_group_offsets"] == OFFSETS_MAX
    assert found['quipu_limit_refusals_total{limit="offsets.max.count"}'] == 20
    assert size_max < 48 * MIB  # about: a snapshot, as much after it, and the next one begun
    assert restarted(node) < START_SECONDS_MAX
    assert node.start_seconds < idle_seconds + 15
    with connected(node) as connection:
        connection.ask(FindCoordinatorRequest(key="g"), 3)
        for group in list(last)[:20]:
            assert committed(connection, group) == last[group]


def test_groups_without_end(node: RunningNode) -> None:
    """K8: they end at group.max.count; groups that nothing is known of make room for others."""
    with Bystander(node) as bystander, connected(node) as connection:
        for number in range(GROUPS_MAX):
            joined = join(connection, f"blank{number}")
            assert joined.error_code == Code.MEMBER_ID_REQUIRED
            member = join(connection, f"blank{number}", member_id=joined.member_id)
            assert member.error_code == Code.NONE
            connection.ask(LeaveGroupRequest(group_id=f"blank{number}", members=[
                MemberIdentity(member_id=joined.member_id)]), 3)
        for number in range(GROUPS_MAX // 2):  # these replace them: they have something to keep
            assert commit(connection, f"kept{number}", 1, width=1) == Code.NONE
        assert join(connection, "late").error_code == Code.POLICY_VIOLATION
        assert commit(connection, "late", 1, width=1) == Code.POLICY_VIOLATION
        assert commit(connection, "kept7", 2, width=1) == Code.NONE
        assert commit(connection, "n" * 5000, 1, width=1) == Code.INVALID_GROUP_ID
        assert join(connection, "n" * 5000).error_code == Code.INVALID_GROUP_ID
    bystander.verdict()
    assert metrics(node)['quipu_limit_refusals_total{limit="group.max.count"}'] == 2
    assert "the limit of group.max.count" in node.log_text()
    assert restarted(node) < START_SECONDS_MAX
    with connected(node) as connection:
        connection.ask(FindCoordinatorRequest(key="g"), 3)
        assert committed(connection, "kept7") == 2


@pytest.mark.parametrize("way", ["promised", "joined", "committed"])
def test_made_up_groups_lock_nobody_out(node: RunningNode, way: str) -> None:
    """K8: two addresses make up groups until they are refused; a stranger's new group is served,
    and all that was acknowledged is there after a restart.
    """
    # Shows broker.groups.B4.
    made = 0
    with Bystander(node) as bystander:
        for source in ("127.0.0.2", "127.0.0.3"):
            with connected(node, source) as connection:
                for number in range(GROUPS_MAX):
                    group = f"{source}-{number}"
                    if way == "committed":
                        code = commit(connection, group, 1, width=1)
                    else:
                        answer = join(connection, group)
                        code = answer.error_code
                        if way == "joined" and code == Code.MEMBER_ID_REQUIRED:
                            code = join(
                                connection, group, member_id=answer.member_id).error_code
                    if code == Code.POLICY_VIOLATION:
                        break
                    made += 1
        with connected(node) as connection:
            for number in range(20):
                joined = join(connection, f"new{number}")
                assert joined.error_code == Code.MEMBER_ID_REQUIRED
                assert join(connection, f"new{number}",
                            member_id=joined.member_id).error_code == Code.NONE
                assert commit(connection, f"simple{number}", 7, width=1) == Code.NONE
    print(f"{made} of {GROUPS_MAX} groups were made up; {bystander.verdict()}")
    assert GROUPS_MAX // 2 <= made < GROUPS_MAX - 40
    assert metrics(node)['quipu_limit_refusals_total{limit="group.max.count"}'] >= 2
    assert restarted(node) < START_SECONDS_MAX
    with connected(node) as connection:
        connection.ask(FindCoordinatorRequest(key="g"), 3)
        assert committed(connection, "simple7") == 7
        assert commit(connection, "after", 1, width=1) == Code.NONE


def test_offsets_of_others_lock_nobody_out(node: RunningNode) -> None:
    """K8: one client commits until offsets.max.count; another commits a few all the same."""
    # Shows broker.groups.B5.
    with connected(node, "127.0.0.2") as connection:
        number = 0
        while commit(connection, f"g{number}", 1) == Code.NONE:
            number += 1
        assert number == OFFSETS_MAX // WIDTH
    with connected(node) as connection:
        assert commit(connection, "few", 1, width=OFFSETS_MAX // GROUPS_MAX) == Code.NONE
        assert commit(connection, "few", 2) == Code.INVALID_COMMIT_OFFSET_SIZE
        assert commit(connection, "other", 3, width=10) == Code.NONE
    assert restarted(node) < START_SECONDS_MAX
    with connected(node) as connection:
        connection.ask(FindCoordinatorRequest(key="g"), 3)
        assert committed(connection, "few") == 1
        assert committed(connection, "other") == 3


def test_members_that_weigh_nothing_on_the_wire(node: RunningNode) -> None:
    """K8: a hundred thousand protocols without name and metadata are refused, and cost nothing."""
    with Bystander(node) as bystander, connected(node) as connection:
        for count in (101, 5_000, 100_000):
            answer = join(connection, "g", [("", b"")] * count)
            assert answer.error_code == Code.INVALID_REQUEST
        for size in (MIB + 1, 2 * MIB - 100):  # the second is refused before it is decoded
            answer = join(connection, "g", [("a", b"x" * size)])
            assert answer.error_code == Code.INVALID_REQUEST
    bystander.verdict()
    assert restarted(node) < START_SECONDS_MAX


def test_members_without_end(node: RunningNode) -> None:
    """K8: all members together are bounded, and a small group is served all the same."""
    heavy = [(f"p{number}", b"x" * 2000) for number in range(99)]
    before = anonymous_size(node)
    refused = 0
    with Bystander(node) as bystander:
        held = []
        for number in range(60):
            connection = connected(node)
            held.append(connection)
            joined = join(connection, f"heavy{number}", heavy)
            if joined.error_code == Code.MEMBER_ID_REQUIRED:
                joined = join(connection, f"heavy{number}", heavy, joined.member_id)
            refused += joined.error_code == Code.GROUP_MAX_SIZE_REACHED
        with connected(node) as connection:
            joined = join(connection, "small")
            assert join(connection, "small", member_id=joined.member_id).error_code == Code.NONE
        for connection in held:
            connection.close()
    found = metrics(node)
    print(f"{refused} of 60 refused; {found['quipu_groups_bytes'] / MIB:.1f} MiB counted, "
          f"{(anonymous_size(node) - before) / MIB:.1f} MiB more; {bystander.verdict()}")
    assert refused > 20
    assert found["quipu_groups_bytes"] <= 8 * MIB
    assert found['quipu_limit_refusals_total{limit="group.max.total.bytes"}'] >= refused
    assert restarted(node) < START_SECONDS_MAX


def test_a_member_that_comes_and_goes_without_end(node: RunningNode) -> None:
    """K3, K8: the log does not grow with what is over; the pipelined flood harms no bystander."""
    size_max = 0
    with Bystander(node) as bystander, connected(node) as connection:
        data = [("range", b"x" * 100_000)]
        for _ in range(200):
            joined = join(connection, "loop", data)
            joined = join(connection, "loop", data, joined.member_id)
            assert joined.error_code == Code.NONE
            connection.ask(LeaveGroupRequest(group_id="loop", members=[
                MemberIdentity(member_id=joined.member_id)]), 3)
            size_max = max(size_max, group_log_size(node))
        flood = encode_request(LeaveGroupRequest(group_id="loop", members=[
            MemberIdentity(member_id="nobody")] * 100), 3, correlation_id=1)
        connection.send(flood * 500)
        time.sleep(0.5)
    print(f"group log of {size_max / MIB:.1f} MiB at most; {bystander.verdict()}")
    assert size_max < 24 * MIB
    assert restarted(node) < START_SECONDS_MAX

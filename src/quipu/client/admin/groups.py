"""Consumer groups: their members, and the offsets that they committed.

Requests about a group go to its coordinator, the one broker that keeps its state.
"""

import time
from collections.abc import Callable, Collection
from typing import Final, NamedTuple, TypeVar

from quipu.client.admin.topics import describe_topics
from quipu.client.cluster import ELECTION_SECONDS, Cluster
from quipu.client.connection import BrokerConnection
from quipu.client.coordinator import coordinator
from quipu.client.errors import (
    BrokerRefused,
    ClientError,
    ConnectionFailed,
    CoordinatorAway,
    broker_refused,
)
from quipu.client.retry import Retry
from quipu.model.errors import Code, MalformedBytes
from quipu.model.ids import TopicPartition
from quipu.model.topics import CONSUMER_OFFSETS
from quipu.wire.messages.consumer_protocol import ConsumerProtocolAssignment, decode_payload
from quipu.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from quipu.wire.messages.k15_describe_groups import (
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from quipu.wire.messages.k16_list_groups import ListGroupsRequest, ListGroupsResponse
from quipu.wire.messages.k42_delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from quipu.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

DEAD: Final = "Dead"  # the state of a group that does not exist, in older versions
CONSUMER: Final = "consumer"  # the protocol type of groups of consumers; empty without members
_OFFSETS_BY_NAME: Final = 9  # the last version of OffsetFetch that names topics

T = TypeVar("T")


class MemberDescription(NamedTuple):
    """A member of a group, and the partitions that it reads."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


class GroupDescription(NamedTuple):
    """A group; `state` as Kafka names it: Empty, Stable, PreparingRebalance, ..."""

    state: str
    assignor: str
    members: tuple[MemberDescription, ...]


class ListedGroups(NamedTuple):
    """The groups of a cluster; unknown are those that `missing` partitions hold."""

    groups: dict[str, str]  # the state of each, by its name
    missing: frozenset[TopicPartition]  # of the topic of groups: they have no leader


def list_groups(cluster: Cluster) -> ListedGroups:
    """The groups of consumers in the cluster."""
    missing = _leaderless(cluster)
    listed = _list_all(cluster)
    return ListedGroups(listed, frozenset(missing))


def _leaderless(cluster: Cluster) -> set[TopicPartition]:
    """The partitions of the topic of groups that have no leader for longer than an election."""
    election = Retry(cluster.settings, seconds=min(
        ELECTION_SECONDS, cluster.settings.default_api_timeout_ms / 1000))
    while True:
        found = describe_topics(cluster).get(CONSUMER_OFFSETS)
        missing = {TopicPartition(CONSUMER_OFFSETS, each.partition)
                   for each in (() if found is None else found.partitions) if each.leader is None}
        if not missing or election.is_over:
            return missing
        time.sleep(election.next_pause())


def _list_all(cluster: Cluster) -> dict[str, str]:
    def list_all() -> dict[str, str]:
        groups: dict[str, str] = {}
        for node_id in cluster.brokers():
            response = cluster.connection(node_id).ask(ListGroupsRequest(), ListGroupsResponse)
            if response.error_code:
                raise broker_refused(response.error_code, "cannot list groups")
            groups |= {each.group_id: each.group_state for each in response.groups
                       if each.protocol_type in ("", CONSUMER)}
        return groups

    return _retried(cluster, list_all)


def describe_group(cluster: Cluster, name: str) -> GroupDescription | None:
    """A group and its members; None if its coordinator knows no such group."""
    def describe(connection: BrokerConnection) -> GroupDescription | None:
        response = connection.ask(DescribeGroupsRequest(groups=[name]), DescribeGroupsResponse)
        for group in response.groups:
            if group.error_code == Code.GROUP_ID_NOT_FOUND or (
                    not group.error_code and group.group_state == DEAD):
                return None
            if group.error_code:
                raise broker_refused(
                    group.error_code, f"cannot describe group {name}", group.error_message)
            members = tuple(_member(each, group.protocol_type) for each in group.members)
            return GroupDescription(group.group_state, group.protocol_data, members)
        raise broker_refused(Code.UNKNOWN_SERVER_ERROR, f"cannot describe group {name}")

    return _at_coordinator(cluster, name, describe)


def delete_group(cluster: Cluster, name: str) -> None:
    """Delete a group that has no members, and the offsets that it committed."""
    def delete(connection: BrokerConnection) -> None:
        response = connection.ask(DeleteGroupsRequest(groups_names=[name]), DeleteGroupsResponse)
        for each in response.results:
            if each.error_code:
                raise broker_refused(each.error_code, f"cannot delete group {name}")

    _at_coordinator(cluster, name, delete)


def committed_offsets(cluster: Cluster, name: str) -> dict[TopicPartition, int]:
    """The next offset to read of every partition for which a group has committed one."""
    request = OffsetFetchRequest(
        group_id=name, topics=None, groups=[OffsetFetchRequestGroup(group_id=name, topics=None)])

    def fetch(connection: BrokerConnection) -> dict[TopicPartition, int]:
        response = connection.ask(request, OffsetFetchResponse, highest=_OFFSETS_BY_NAME)
        found = response.groups[0] if response.groups else response
        if found.error_code:
            raise broker_refused(found.error_code, f"cannot read the offsets of group {name}")
        offsets = {}
        for topic in found.topics:
            for part in topic.partitions:
                if part.error_code:
                    raise broker_refused(
                        part.error_code, f"cannot read the offsets of group {name}")
                if part.committed_offset >= 0:
                    offsets[TopicPartition(topic.name, part.partition_index)] = (
                        part.committed_offset)
        return offsets

    return _at_coordinator(cluster, name, fetch)


def delete_offsets(cluster: Cluster, name: str, partitions: Collection[TopicPartition]) -> None:
    """Delete offsets that a group has committed, of topics that no member reads now."""
    topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(
            OffsetDeleteRequestPartition(partition_index=partition))
    request = OffsetDeleteRequest(group_id=name, topics=[
        OffsetDeleteRequestTopic(name=topic, partitions=parts) for topic, parts in topics.items()])
    doing = f"cannot delete offsets of group {name}"

    def delete(connection: BrokerConnection) -> None:
        response = connection.ask(request, OffsetDeleteResponse)
        if response.error_code:
            raise broker_refused(response.error_code, doing)
        for topic in response.topics:
            for part in topic.partitions:
                if part.error_code:
                    raise broker_refused(part.error_code, doing)

    _at_coordinator(cluster, name, delete)


def _member(member: DescribedGroupMember, protocol_type: str) -> MemberDescription:
    partitions: list[TopicPartition] = []
    if protocol_type == CONSUMER and member.member_assignment:
        try:
            assignment = decode_payload(ConsumerProtocolAssignment, member.member_assignment)
        except MalformedBytes:
            pass  # only the members themselves need to read it
        else:
            partitions = [TopicPartition(topic.topic, partition)
                          for topic in assignment.assigned_partitions
                          for partition in topic.partitions]
    return MemberDescription(
        member.member_id, member.group_instance_id, member.client_id, member.client_host,
        tuple(sorted(partitions)))


def _at_coordinator(cluster: Cluster, group: str, call: Callable[[BrokerConnection], T]) -> T:
    """Make a call on a connection to the group's current coordinator."""
    try:
        return _retried(cluster, lambda: call(coordinator(cluster, group)))
    except BrokerRefused as error:
        if error.code in (Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR,
                          Code.COORDINATOR_LOAD_IN_PROGRESS):
            raise CoordinatorAway(
                f"the coordinator of group {group} is not available [{error.code.name}]: the "
                f"partition of {CONSUMER_OFFSETS} that holds the group has no leader, or a new one "
                "that is not ready yet; see `quipu chain describe`") from None
        raise


def _retried(cluster: Cluster, call: Callable[[], T]) -> T:
    retry = Retry(cluster.settings)
    while True:
        try:
            return call()
        except ConnectionFailed as error:
            if not any(map(cluster.is_connected, cluster.addresses())):
                cluster.any_connection()  # raises at once if no broker can be reached
            retry.pause(error)
        except ClientError as error:
            retry.pause(error)

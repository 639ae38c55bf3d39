"""Deletes records of partitions, elects leaders, and moves replicas to other nodes."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from quipu.client.admin.routing import ask_any
from quipu.client.cluster import Cluster
from quipu.client.errors import ClientError, broker_refused
from quipu.client.retry import Retry
from quipu.model.errors import Code
from quipu.model.ids import TopicPartition
from quipu.wire.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from quipu.wire.messages.k43_elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from quipu.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from quipu.wire.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

HIGH_WATERMARK: Final = -1  # as an offset: delete every record that is committed
_PREFERRED: Final = 0
_UNCLEAN: Final = 1


class MovingPartition(NamedTuple):
    """A partition that is being reassigned: its replicas, those being added and removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def delete_records(cluster: Cluster, offsets: Mapping[TopicPartition, int]) -> None:
    """Delete the records before an offset in each partition, by requests to the leaders."""
    for partition, offset in offsets.items():
        retry = Retry(cluster.settings)
        while True:
            try:
                _delete_records(cluster, partition, offset)
                break
            except ClientError as error:
                retry.pause(error)
                cluster.refresh([partition.topic])


def elect_leaders(
    cluster: Cluster, partitions: Collection[TopicPartition], *, unclean: bool = False
) -> list[TopicPartition]:
    """Elect the preferred replicas; returns the partitions whose leader has changed.

    `unclean`: where no replica has every record, elect one that lacks some, which are lost.
    """
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    request = ElectLeadersRequest(
        election_type=_UNCLEAN if unclean else _PREFERRED,
        topic_partitions=[TopicPartitions(topic=topic, partitions=indexes)
                          for topic, indexes in topics.items()],
        timeout=cluster.settings.request_timeout_ms)
    response = ask_any(cluster, request, ElectLeadersResponse).response
    if response.error_code:
        raise broker_refused(response.error_code, "cannot elect leaders")
    elected = []
    for result in response.replica_election_results:
        for each in result.partition_result:
            partition = TopicPartition(result.topic, each.partition_id)
            if each.error_code == Code.NONE:
                elected.append(partition)
            elif each.error_code != Code.ELECTION_NOT_NEEDED:
                raise broker_refused(
                    each.error_code, f"cannot elect a leader of {partition}", each.error_message)
    return elected


def reassign_partitions(
    cluster: Cluster, replicas: Mapping[TopicPartition, Sequence[int] | None]
) -> None:
    """Move partitions to other nodes; None cancels a move that has not ended."""
    topics: dict[str, list[ReassignablePartition]] = {}
    for (topic, index), nodes in replicas.items():
        topics.setdefault(topic, []).append(ReassignablePartition(
            partition_index=index, replicas=None if nodes is None else list(nodes)))
    request = AlterPartitionReassignmentsRequest(
        timeout=cluster.settings.request_timeout_ms,
        topics=[ReassignableTopic(name=topic, partitions=parts)
                for topic, parts in topics.items()])
    response = ask_any(cluster, request, AlterPartitionReassignmentsResponse).response
    if response.error_code:
        raise broker_refused(
            response.error_code, "cannot move partitions", response.error_message)
    for each in response.responses:
        for part in each.partitions:
            if part.error_code:
                partition = TopicPartition(each.name, part.partition_index)
                raise broker_refused(
                    part.error_code, f"cannot move {partition}", part.error_message)


def list_reassignments(cluster: Cluster) -> dict[TopicPartition, MovingPartition]:
    """Every partition that is moving now."""
    request = ListPartitionReassignmentsRequest(timeout=cluster.settings.request_timeout_ms)
    response = ask_any(cluster, request, ListPartitionReassignmentsResponse).response
    if response.error_code:
        raise broker_refused(
            response.error_code, "cannot list moving partitions", response.error_message)
    return {
        TopicPartition(topic.name, each.partition_index): MovingPartition(
            tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas))
        for topic in response.topics for each in topic.partitions}


def _delete_records(cluster: Cluster, partition: TopicPartition, offset: int) -> None:
    leader = cluster.leader(partition).node_id
    if leader < 0:
        raise broker_refused(Code.LEADER_NOT_AVAILABLE, f"cannot delete records of {partition}")
    part = DeleteRecordsPartition(partition_index=partition.partition, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=partition.topic, partitions=[part])],
        timeout=cluster.settings.request_timeout_ms)
    response = cluster.connection(leader).ask(request, DeleteRecordsResponse)
    for topic in response.topics:
        for each in topic.partitions:
            if each.error_code:
                raise broker_refused(each.error_code, f"cannot delete records of {partition}")

"""Commit of a group's offsets, so that tools which watch groups can tell how far a reader is.

Nothing is ever read back: a reader's own checkpoint says where it goes on.
"""

from collections.abc import Mapping
from typing import Final

from quipu.client.cluster import Cluster
from quipu.client.connection import Connection
from quipu.client.errors import ClientError, ConnectionFailed, refused
from quipu.client.retry import Retry
from quipu.model.ids import TopicPartition
from quipu.model.settings_types import Address
from quipu.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from quipu.wire.messages.k10_find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_VERSION_BY_NAME: Final = 9  # the last one that names topics
_GROUP: Final = 0


def commit(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Store the next offset to read of each partition under the name of a group."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, []).append(
            OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset))
    request = OffsetCommitRequest(group_id=group, topics=[
        OffsetCommitRequestTopic(name=name, partitions=partitions)
        for name, partitions in topics.items()])
    retry = Retry(cluster.settings)
    while True:
        try:
            answer = _coordinator(cluster, group).ask(
                request, OffsetCommitResponse, highest=_VERSION_BY_NAME)
            for told in answer.topics:
                for part in told.partitions:
                    if part.error_code:
                        raise refused(part.error_code, f"commit of {told.name} for group {group}")
            return
        except ClientError as error:
            retry.pause(error)


def _coordinator(cluster: Cluster, group: str) -> Connection:
    """A connection to the broker that looks after a group."""
    question = FindCoordinatorRequest(key=group, key_type=_GROUP, coordinator_keys=[group])
    answer = cluster.any_connection().ask(question, FindCoordinatorResponse)
    found = answer.coordinators[0] if answer.coordinators else answer
    if found.error_code:
        raise refused(found.error_code, f"coordinator of group {group}")
    if not found.host:
        raise ConnectionFailed(f"the coordinator of group {group} has no address")
    return cluster.connection_at(Address(found.host, found.port))

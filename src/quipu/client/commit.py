"""Commits a group's offsets, so that tools which monitor groups can show how far a reader is.

The offsets are never read back: a reader continues from its own checkpoint.
"""

from collections.abc import Mapping
from typing import Final

from quipu.client.cluster import Cluster
from quipu.client.coordinator import coordinator
from quipu.client.errors import ClientError, broker_refused
from quipu.client.retry import Retry
from quipu.model.ids import TopicPartition
from quipu.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

_VERSION_BY_NAME: Final = 9  # the last version that names topics instead of giving their ids


def commit(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Store the next offset to read of each partition under the name of a group.

    The coordinator refuses this while the group has members: only they may commit then.
    """
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
            response = coordinator(cluster, group).ask(
                request, OffsetCommitResponse, highest=_VERSION_BY_NAME)
            for found in response.topics:
                for part in found.partitions:
                    if part.error_code:
                        raise broker_refused(
                            part.error_code, f"commit of {found.name} for group {group}")
            return
        except ClientError as error:
            retry.pause(error)

"""The keys under which metadata is stored.

    TOPIC_ID/PARTITION/header                               the partition's leader and deletion
    TOPIC_ID/PARTITION/segments/SEGMENT_ID                  a segment
    TOPIC_ID/PARTITION/epochs/EPOCH/header                  the epoch's highest offset
    TOPIC_ID/PARTITION/epochs/EPOCH/references/START        which segment is read from START
    TOPIC_ID/PARTITION/epochs/EPOCH/unreferenced/SEGMENT_ID a segment that is not read
    clusters/CLUSTER_ID/TOPIC_ID/PARTITION                  says that the partition has a header

Numbers are written with leading zeros, so that keys are in the order of epochs and offsets.

Each backend comes with a key factory (connector.py).  No key is ever parsed: values say what they
are, so a factory may name keys as its backend likes, under two conditions: the key of what is below
another thing is below its key, and reference keys of an epoch are in the order of their offsets.
"""

from typing import Protocol
from uuid import UUID

from quipu.remote.metadata.segment_metadata import TopicIdPartition


class MetadataKeyFactory(Protocol):
    """Names the keys of a backend."""

    def partition_key(self, partition: TopicIdPartition) -> str:
        """That all keys of a partition are below."""
        ...

    def header_key(self, partition: TopicIdPartition) -> str:
        """Of a partition's own metadata: its leader, and its delete state."""
        ...

    def segments_key(self, partition: TopicIdPartition) -> str:
        """That the keys of all segments of a partition are below."""
        ...

    def segment_key(self, partition: TopicIdPartition, segment: UUID) -> str:
        ...

    def epochs_key(self, partition: TopicIdPartition) -> str:
        """That the keys of all leader epochs of a partition are below."""
        ...

    def epoch_key(self, partition: TopicIdPartition, epoch: int) -> str:
        """That all keys of a leader epoch are below."""
        ...

    def epoch_header_key(self, partition: TopicIdPartition, epoch: int) -> str:
        """Of a leader epoch's highest offset."""
        ...

    def references_key(self, partition: TopicIdPartition, epoch: int) -> str:
        """That the keys of all references of a leader epoch are below."""
        ...

    def reference_key(self, partition: TopicIdPartition, epoch: int, start: int) -> str:
        ...

    def unreferenced_key(self, partition: TopicIdPartition, epoch: int, segment: UUID) -> str:
        ...

    def cluster_key(self, cluster_id: str) -> str:
        """That the entries of all partitions of a cluster are below."""
        ...

    def entry_key(self, cluster_id: str, partition: TopicIdPartition) -> str:
        """Of the entry that says that a partition of a cluster has a header."""
        ...


class PathKeyFactory:
    """Keys like paths, for every backend of Quipu."""

    def partition_key(self, partition: TopicIdPartition) -> str:
        return f"{partition.topic_id}/{partition.partition:010d}"

    def header_key(self, partition: TopicIdPartition) -> str:
        return f"{self.partition_key(partition)}/header"

    def segments_key(self, partition: TopicIdPartition) -> str:
        return f"{self.partition_key(partition)}/segments"

    def segment_key(self, partition: TopicIdPartition, segment: UUID) -> str:
        return f"{self.segments_key(partition)}/{segment}"

    def epochs_key(self, partition: TopicIdPartition) -> str:
        return f"{self.partition_key(partition)}/epochs"

    def epoch_key(self, partition: TopicIdPartition, epoch: int) -> str:
        return f"{self.epochs_key(partition)}/{epoch:010d}"

    def epoch_header_key(self, partition: TopicIdPartition, epoch: int) -> str:
        return f"{self.epoch_key(partition, epoch)}/header"

    def references_key(self, partition: TopicIdPartition, epoch: int) -> str:
        return f"{self.epoch_key(partition, epoch)}/references"

    def reference_key(self, partition: TopicIdPartition, epoch: int, start: int) -> str:
        return f"{self.references_key(partition, epoch)}/{start:019d}"

    def unreferenced_key(self, partition: TopicIdPartition, epoch: int, segment: UUID) -> str:
        return f"{self.epoch_key(partition, epoch)}/unreferenced/{segment}"

    def cluster_key(self, cluster_id: str) -> str:
        return f"clusters/{cluster_id}"

    def entry_key(self, cluster_id: str, partition: TopicIdPartition) -> str:
        return f"{self.cluster_key(cluster_id)}/{self.partition_key(partition)}"

"""Metadata — API key 3, versions 0-13.

Behaviour
    * returns the brokers, and the partitions, leaders and replicas of topics
    * a null array means all topics; in v0 an empty one does
    * may create a topic that is requested by name and does not exist
Versions
    v1   racks, controller, internal topics; null means all topics, an empty array none
    v2   cluster id
    v4   the client may forbid the creation of topics
    v5   offline replicas
    v7   leader epochs
    v8   operations that the client is authorized for
    v9   flexible encoding
    v10  topic ids, and names may be null
    v11  operations on the cluster move to DescribeCluster
    v12  topics may be requested by id
    v13  an error code for the whole response
Of our own
    From v12 on a topic of a response may have the tagged field 100, `is_diskless`: one byte, 1 if
    the records of the topic are in object storage alone.  Other topics do not have the field, and
    clients that do not know it pass over it.  Kafka numbers its own tagged fields from 0 on, so
    100 leaves room for those to come, and no version is claimed that Kafka may define otherwise.
"""

from uuid import UUID

from quipu.wire.fields import INT32, array, boolean, int16, int32, string, uuid
from quipu.wire.schema import Request, Response, Struct


class MetadataRequestTopic(Struct):
    """A topic to describe."""

    topic_id: UUID = uuid("10+")
    name: str | None = string(nullable="10+")


class MetadataRequest(Request, key=3, versions="0-13", flexible="9+"):
    """Get brokers and topics."""

    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


class MetadataResponseBroker(Struct):
    """A broker and its address."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string("1+", nullable="0+", default=None)


class MetadataResponsePartition(Struct):
    """A partition: its leader and replicas."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32("7+", default=-1)
    replica_nodes: list[int] = array(INT32)
    isr_nodes: list[int] = array(INT32)
    offline_replicas: list[int] = array(INT32, "5+")


class MetadataResponseTopic(Struct):
    """A topic and its partitions."""

    error_code: int = int16()
    name: str | None = string(nullable="12+")
    topic_id: UUID = uuid("10+")
    is_internal: bool = boolean("1+")
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32("8+", default=-0x8000_0000)
    is_diskless: bool = boolean("12+", tag=100)  # of our own


class MetadataResponse(Response, key=3, versions="0-13", flexible="9+"):
    """Brokers and topics."""

    throttle_time: int = int32("3+")
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string("2+", nullable="0+", default=None)
    controller_id: int = int32("1+", default=-1)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32("8-10", default=-0x8000_0000)
    error_code: int = int16("13+")

"""CreateTopics — API key 19, versions 2-7.

Behaviour
    * creates topics, each with a number of partitions or with replicas given one by one
    * -1 partitions or replicas mean the broker's default
Versions
    v4  -1 for the broker's defaults
    v5  flexible encoding; responses have the topic's partitions, replicas and settings
    v6  THROTTLING_QUOTA_EXCEEDED may be returned
    v7  responses have the topic's id
"""

from uuid import UUID

from quipu.wire.fields import INT32, array, boolean, int8, int16, int32, string, uuid
from quipu.wire.schema import Request, Response, Struct


class CreatableReplicaAssignment(Struct):
    """The brokers of one partition's replicas."""

    partition_index: int = int32()
    broker_ids: list[int] = array(INT32)


class CreatableTopicConfig(Struct):
    """A setting of the new topic."""

    name: str = string()
    value: str | None = string(nullable="0+")


class CreatableTopic(Struct):
    """A topic to create."""

    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


class CreateTopicsRequest(Request, key=19, versions="2-7", flexible="5+"):
    """Create these topics."""

    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout: int = int32(default=60000)
    validate_only: bool = boolean()


class CreatableTopicConfigs(Struct):
    """A setting that the new topic has."""

    name: str = string()
    value: str | None = string(nullable="0+")
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()


class CreatableTopicResult(Struct):
    """The new topic, or why it was not created."""

    name: str = string()
    topic_id: UUID = uuid("7+")
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    topic_config_error_code: int = int16("5+", tag=0)
    num_partitions: int = int32("5+", default=-1)
    replication_factor: int = int16("5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = array(CreatableTopicConfigs, "5+", nullable="0+")


class CreateTopicsResponse(Response, key=19, versions="2-7", flexible="5+"):
    """The result for each topic."""

    throttle_time: int = int32()
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)

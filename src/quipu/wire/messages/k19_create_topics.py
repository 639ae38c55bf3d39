"""CreateTopics — API key 19.
"""

from uuid import UUID

from quipu.wire.fields import INT32, array, boolean, int16, int32, int8, string, uuid
from quipu.wire.schema import Request, Response, Struct


class CreatableReplicaAssignment(Struct):
    """TODO."""

    partition_index: int = int32()
    broker_ids: list[int] = array(INT32)


class CreatableTopicConfig(Struct):
    """TODO."""

    name: str = string()
    value: str | None = string(nullable="0+")


class CreatableTopic(Struct):
    """TODO."""

    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


class CreateTopicsRequest(Request, key=19, versions="2-7", flexible="5+"):
    """TODO."""

    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout: int = int32(default=60000)
    validate_only: bool = boolean()


class CreatableTopicConfigs(Struct):
    """TODO."""

    name: str = string()
    value: str | None = string(nullable="0+")
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()


class CreatableTopicResult(Struct):
    """TODO."""

    name: str = string()
    topic_id: UUID = uuid("7+")
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    topic_config_error_code: int = int16("5+", tag=0)
    num_partitions: int = int32("5+", default=-1)
    replication_factor: int = int16("5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = array(CreatableTopicConfigs, "5+", nullable="0+")


class CreateTopicsResponse(Response, key=19, versions="2-7", flexible="5+"):
    """TODO."""

    throttle_time: int = int32()
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)

"""Requests made from the declarations of the messages: every field of the version, drawn by name.

    fill(world, MetadataRequest, 12)

A field's values are drawn by the function in DRAW under "Struct.field" or "field"; numbers and
texts without one get defaults and boundaries.  So every API is generated as soon as it is declared;
generators.py tunes those whose fields belong together.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar
from uuid import UUID

from quipu.wire.layout import FieldSlot, layout
from quipu.wire.schema import Struct
from tests.differential.world import INTERNAL_TOPIC, World

S = TypeVar("S", bound=Struct)
Draw = Callable[[World], Any]

TOPIC_SETTINGS: Final[dict[str, tuple[str | None, ...]]] = {
    "retention.ms": ("-1", "86400000", "x", None, "", "-2"),
    "retention.bytes": ("-1", "100000000", "1.5"),
    "max.message.bytes": ("1048588", "2000", "-1", "x"),
    "cleanup.policy": ("delete", "compact", "compact,delete", "destroy"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime", "createtime"),
    "compression.type": ("producer", "brotli"),
    "min.insync.replicas": ("1", "x"),
    "flush.messages": ("1000", "0"),
    "segment.bytes": ("1073741824", "1"),
    "no.such.setting": ("1",),
    "unclean.leader.election.enable": ("false", "maybe"),
}
BROKER_KEYS: Final = ("message.max.bytes", "num.partitions", "log.retention.ms", "nothing.known")


def _topic_or_internal(world: World) -> str:
    return world.mostly((world.topic(),), (INTERNAL_TOPIC,), odds=0.05)


def _setting(world: World) -> str:
    return world.pick_of(tuple(TOPIC_SETTINGS))


def _instance(world: World) -> str | None:
    return world.mostly((None,), ("instance", ""), odds=0.1)


def _deadline(world: World) -> int:
    """A time limit of the controller; 0 is over at once, and others below a second by chance."""
    return world.mostly((30_000,), (0,), odds=0.06)


def _words(*values: Any) -> Draw:
    return lambda world: world.pick_of(values)


DRAW: Final[dict[str, Draw]] = {
    "topic": World.topic, "topic_name": World.topic, "topics": World.topic,
    "topic_names": World.volatile_topic,
    "MetadataRequestTopic.name": _topic_or_internal, "TopicRequest.name": _topic_or_internal,
    "ListOffsetsTopic.name": World.topic, "TopicProduceData.name": World.topic,
    "OffsetCommitRequestTopic.name": World.topic, "OffsetFetchRequestTopic.name": World.topic,
    "OffsetFetchRequestTopics.name": World.topic, "OffsetDeleteRequestTopic.name": World.topic,
    "DeleteRecordsTopic.name": World.topic, "CreatableTopic.name": World.volatile_topic,
    "CreatePartitionsTopic.name": World.volatile_topic, "ReassignableTopic.name": World.topic,
    "DeleteTopicState.name": World.volatile_topic,
    "ListPartitionReassignmentsTopics.name": World.topic,
    "CreatableTopicConfig.name": _setting, "AlterableConfig.name": _setting,
    "configuration_keys": _setting,
    "topic_id": World.topic_id,
    "partition": World.partition, "partition_index": World.partition, "index": World.partition,
    "partitions": World.partition, "partition_indexes": World.partition,
    "fetch_offset": World.offset, "DeleteRecordsPartition.offset": World.offset,
    "committed_offset": World.offset,
    "committed_metadata": _words("", None, "note", "n" * 4097),
    "committed_leader_epoch": _words(-1, 0, 5),
    "timestamp": World.timestamp,
    "current_leader_epoch": World.leader_epoch, "leader_epoch": World.leader_epoch,
    "last_fetched_epoch": World.leader_epoch,
    "group_id": World.group, "groups": World.group, "groups_names": World.group,
    "group_ids": World.group, "key": World.group, "coordinator_keys": World.group,
    "key_type": _words(0, 0, 0, 0, 3, -1),
    "member_id": World.member_id, "group_instance_id": _instance,
    "generation_id": _words(-1, 0, 1, 7), "generation_id_or_member_epoch": _words(-1, -1, 0, 1),
    "member_epoch": _words(-1, 0), "retention_time": _words(-1, 1000),
    "timeout": _deadline, "isolation_level": _words(0, 0, 1),
    "replica_id": _words(-1), "ListOffsetsRequest.timeout": World.timeout,
    "DeleteRecordsRequest.timeout": World.timeout,
    "states_filter": _words("Stable", "Empty", "empty", "Dead", "nonsense", "PreparingRebalance"),
    "types_filter": _words("classic", "consumer", "Classic", "nonsense", "share"),
    "client_software_name": _words("librdkafka", "apache-kafka-java", "bad name", ""),
    "client_software_version": _words("2.3.0", "4.2.0", "1 0", ""),
    "num_partitions": _words(-1, 1, 1, 2, 3, 0, -2), "replication_factor": _words(-1, 1, 1, 0, -2),
    "count": _words(-1, 0, 1, 2, 3, 4, 5), "broker_ids": _words(1, 1, 1, 99, -1),
    "replicas": _words(1, 1, 1, 99, -1),
    "producer_epoch": _words(-1, 0, 1), "transaction_timeout": _words(0, 1, 60_000),
    "election_type": _words(0, 0, 1, 2), "endpoint_type": _words(1, 1, 2, 3, 0),
    "resource_type": _words(2, 2, 2, 2, 2, 4, 3, 99),
    "config_operation": _words(0, 0, 1, 2, 3, 4), "response_partition_limit": _words(
        2000, 2000, 1, 2, 0, -1),
    "protocol_type": _words("consumer", "connect", ""), "protocol_name": _words("range", ""),
    "resource_type_filter": _words(1, 2, 3, 4, 5), "pattern_type_filter": _words(1, 2, 3, 4),
    "resource_pattern_type": _words(3, 4), "AclCreation.resource_type": _words(2, 3, 4, 5),
    "operation": _words(2, 3, 4, 8), "permission_type": _words(2, 3),
    "AclCreation.principal": _words("User:somebody"), "principal_filter": _words("User:x", None),
    "host": _words("*"), "host_filter": _words("*", None),
    "broker_id": _words(99, -1), "voter_id": _words(99, -1),
}
ZERO = UUID(int=0)


def fill(world: World, made: type[S], version: int) -> S:
    """A struct with all fields of a version; a tagged field is there now and then."""
    shape = layout(made, version)
    values = {slot.name: _value(world, made.__name__, slot, version) for slot in shape.plain}
    for slot in shape.tagged:
        if world.chance(0.2):
            values[slot.name] = _value(world, made.__name__, slot, version)
    return made(**values)


def _value(world: World, struct: str, slot: FieldSlot, version: int) -> Any:
    if slot.is_array:
        if slot.nullable and world.chance(0.1):
            return None
        return [_one(world, struct, slot, version) for _ in range(world.several())]
    if slot.nullable and slot.is_struct and world.chance(0.5):
        return None
    return _one(world, struct, slot, version)


def _one(world: World, struct: str, slot: FieldSlot, version: int) -> Any:
    if slot.is_struct:
        return fill(world, slot.kind, version)
    draw = DRAW.get(f"{struct}.{slot.name}", DRAW.get(slot.name))
    if draw is not None:
        value = draw(world)
        return "" if value is None and not slot.nullable else value
    match slot.kind.name:
        case "bool":
            return world.chance(0.5)
        case "string":
            return world.pick("", "text")
        case "bytes":
            return world.pick(b"", b"bytes")
        case "uuid":
            return ZERO
        case "records":
            return None
        case "uint16":
            return world.pick(0, 9092)
    return world.pick(0, 1, -1)

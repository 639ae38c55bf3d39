"""One generator per API: a random request of a version, over the shared world.

Most requests are filled in by their declaration (filling.py); TUNE corrects those whose fields
belong together, and keeps every request from doing what one side could not follow.  What needs the
response of an earlier request is a scene (scenes.py).
"""

from collections.abc import Callable
from typing import Any, Final

from quipu.model.ids import ZERO_UUID
from quipu.wire.messages import REQUESTS
from quipu.wire.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from quipu.wire.schema import Request
from tests.differential.batches import batch
from tests.differential.filling import BROKER_KEYS, TOPIC_SETTINGS, fill
from tests.differential.steps import Step
from tests.differential.world import (
    ABSENT_ID,
    AUTO_TOPICS,
    BAD_TOPICS,
    FIXED_TOPICS,
    INTERNAL_TOPIC,
    MEMBERS,
    SIMPLE_GROUPS,
    VOLATILE_TOPICS,
    WHOLE_TOPICS,
    World,
)

LARGE: Final = 1 << 20
BY_ID_PRODUCE, BY_ID_FETCH, BY_ID_METADATA = 13, 13, 12
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
KNOWN_RESOURCES: Final = (TOPIC_RESOURCE, BROKER_RESOURCE)
MAX_TIMESTAMP: Final = -3
APPEND, SUBTRACT = 2, 3
UNKNOWN_SETTING: Final = "no.such.setting"
Tune = Callable[[World, Any, int], Step | None]


def produce(world: World, version: int) -> Step:
    topics: list[TopicProduceData] = []
    topic_count = world.dice.choices((1, 2, 0), (85, 13, 2))[0]
    for _ in range(topic_count):
        name, made = world.topic(), []
        facts = world.topics.get(name)
        count = world.dice.choices((1, 2), (85, 15))[0]
        for _ in range(count):
            partition = world.partition()
            # A Both is resolved later.
            records: Any = batch(
                world, name, partition, faults=count == 1 == topic_count)
            made.append(PartitionProduceData(index=partition, records=records))
        topic_id: Any = facts.topic_id if facts and world.chance(0.9) else world.topic_id()
        topics.append(TopicProduceData(name=name, topic_id=topic_id, partition_data=made))
    acks = world.dice.choices((1, -1, 0, 2, -2), (46, 46, 1, 4, 3))[0]
    request = ProduceRequest(
        acks=acks, timeout=world.timeout(), topic_data=topics)
    return Step(request, version, alone=acks == 0)


def _fetch(world: World, request: Any, version: int) -> Step:
    request.max_wait = world.pick(0, 0, 0, 1, 5)
    request.min_bytes = world.pick(0, 1, 1)
    request.max_bytes = world.mostly((LARGE,), (0, 1, 300), odds=0.2)
    request.session_id, request.session_epoch = 0, -1
    if world.chance(0.1):
        request.session_id, request.session_epoch = world.pick((0, 5), (77, 1), (77, 0), (77, -1))
        # a session that begins needs a scene
    request.forgotten_topics_data = []
    if version >= 15:
        request.replica_state = type(request.replica_state)()
    request.cluster_id = None
    request.rack_id = world.pick("", "rack")
    limited = request.max_bytes != LARGE
    for topic in request.topics:
        for partition in topic.partitions:
            partition.partition_max_bytes = world.mostly((LARGE,), (0, 1, 200), odds=0.15)
            partition.log_start_offset = -1
            partition.replica_directory_id = ZERO_UUID
            partition.high_watermark = 2**63 - 1
            limited |= partition.partition_max_bytes != LARGE
    return Step(request, version, limited=limited)


def _metadata(world: World, request: Any, version: int) -> Step:
    if request.topics:
        for topic in request.topics:
            if version >= BY_ID_METADATA and world.chance(0.4):
                topic.name = None if world.chance(0.85) else topic.name
                if topic.topic_id == ZERO_UUID:  # Kafka: UNKNOWN_SERVER_ERROR
                    topic.topic_id = ABSENT_ID
            else:
                topic.topic_id = ZERO_UUID if world.chance(0.95) else topic.topic_id
    request.allow_auto_topic_creation = False
    settles = False
    if request.topics and version >= 4 and world.chance(0.03):
        request.topics[0].name, request.topics[0].topic_id = world.pick_of(AUTO_TOPICS), ZERO_UUID
        request.allow_auto_topic_creation = settles = True
    if version < 4 and request.topics is not None:
        for topic in request.topics:
            topic.name = world.pick_of(tuple(FIXED_TOPICS))
    return Step(request, version, settles=settles)


def _find_coordinator(world: World, request: Any, version: int) -> Step:
    if version < 3 and request.key_type == -1:
        request.key_type = 0
    return Step(request, version)


def _offset_commit(world: World, request: Any, version: int) -> Step:
    # A commit without a member to a group that has members is refused or not, by the scene that
    # goes on; so only groups that never have members get them.
    request.group_id = world.pick_of(SIMPLE_GROUPS)
    if world.chance(0.7):
        request.member_id, request.generation_id_or_member_epoch = "", -1
        request.group_instance_id = None
    for topic in request.topics:  # a group of refused offsets alone is kept by Kafka only
        for partition in topic.partitions[:1]:
            partition.committed_metadata = "note"
    return Step(request, version)


def _join_group(world: World, request: Any, version: int) -> Step:
    """A join that is refused: others have consequences, and are in scenes."""
    request.rebalance_timeout = world.pick(-1, 10_000, 0)
    request.session_timeout = world.pick(10_000, 10_000, 0, 5_999, 1_800_001, -1)
    request.member_id = world.pick_of(MEMBERS[1:])
    if request.protocol_type == "" and world.chance(0.7):
        request.protocol_type = "consumer"
    return Step(request, version)


def _create_topics(world: World, request: Any, version: int) -> Step:
    for topic in request.topics:
        if topic.assignments and world.chance(0.85):
            topic.assignments = []
        if topic.assignments and world.chance(0.8):
            topic.num_partitions = topic.replication_factor = -1
            for number, assignment in enumerate(topic.assignments):
                assignment.partition_index = number
        if world.chance(0.5):
            topic.configs = []
        for config in topic.configs:
            config.value = world.pick_of(TOPIC_SETTINGS[config.name])
        if world.chance(0.05):
            topic.name = world.pick_of(tuple(FIXED_TOPICS))
    request.validate_only = world.chance(0.4)
    return Step(request, version, settles=True)


def _delete_topics(world: World, request: Any, version: int) -> Step:
    protected = {*FIXED_TOPICS, INTERNAL_TOPIC, "__transaction_state"}
    for state in request.topics:
        if world.chance(0.5):
            state.name = None
            gone = [facts.topic_id for name, facts in world.topics.items() if name not in protected]
            state.topic_id = world.pick_of([*gone, *world.deleted_ids[-2:], ZERO_UUID])
        elif world.chance(0.9):
            state.topic_id = ZERO_UUID
        else:
            state.topic_id = world.pick_of([ZERO_UUID, *world.deleted_ids])
    return Step(request, version, settles=True)


def _create_partitions(world: World, request: Any, version: int) -> Step:
    for topic in request.topics:
        if world.chance(0.7):
            topic.assignments = None
    request.validate_only = world.chance(0.5)
    return Step(request, version, settles=True)


def _alter_configs(world: World, request: Any, version: int) -> Step:
    # Kafka 4.2 does not respond to an AlterConfigs request that names a resource twice.
    names = world.dice.sample([*VOLATILE_TOPICS, "no-such-topic", "a b", ""], 3)
    for resource, name in zip(request.resources, names, strict=False):
        resource.resource_name = name
    for resource in request.resources:
        for config in resource.configs:
            config.value = world.pick_of(TOPIC_SETTINGS[config.name])
        if resource.resource_type == BROKER_RESOURCE:
            resource.resource_name = world.pick("1", "99", "x")
            resource.resource_type = TOPIC_RESOURCE if resource is not request.resources[0] \
                else BROKER_RESOURCE
            request.validate_only = True
    if any(map(_fails_in_kafka, request.resources)):
        del request.resources[1:]
    return Step(request, version, settles=True)


def _fails_in_kafka(resource: Any) -> bool:
    """Whether Kafka fails all resources of a request for this one."""
    return any(operation > SUBTRACT or (operation >= APPEND and config.name == UNKNOWN_SETTING)
               for config in resource.configs
               for operation in [getattr(config, "config_operation", 0)])


def _describe_configs(world: World, request: Any, version: int) -> Step:
    if any(resource.resource_type not in KNOWN_RESOURCES for resource in request.resources):
        del request.resources[1:]  # Kafka refuses all resources of a request with an unknown one
    for resource in request.resources:
        resource.resource_name = world.pick(*FIXED_TOPICS, *VOLATILE_TOPICS, "no-such-topic", "a b")
        if resource.resource_type == BROKER_RESOURCE:
            resource.resource_name = world.pick("1", "", "99", "x")
            resource.configuration_keys = list(world.dice.sample(BROKER_KEYS, 2))
    request.resources = _distinct(
        request.resources, lambda each: (each.resource_type, each.resource_name))
    return Step(request, version)


def _distinct(elements: list[Any], key: Callable[[Any], Any]) -> list[Any]:
    """What a request describes, each element once: here a repeated one is described once."""
    return list({key(each): each for each in elements}.values())


def _describe_producers(world: World, request: Any, version: int) -> Step:
    request.topics = _distinct(request.topics, lambda topic: topic.name)
    for topic in request.topics:
        topic.partition_indexes = list(dict.fromkeys(topic.partition_indexes))
    return Step(request, version)


def _offset_fetch(world: World, request: Any, version: int) -> Step:
    request.groups = _distinct(request.groups, lambda group: group.group_id)
    for part in (request, *request.groups):
        if part.topics:
            part.topics = _distinct(
                part.topics, lambda topic: (topic.name, getattr(topic, "topic_id", None)))
            for topic in part.topics:
                topic.partition_indexes = list(dict.fromkeys(topic.partition_indexes))
    return Step(request, version)


def _describe_groups(world: World, request: Any, version: int) -> Step:
    request.groups = list(dict.fromkeys(request.groups))
    return Step(request, version)


def _describe_topic_partitions(world: World, request: Any, version: int) -> Step:
    request.topics = _distinct(request.topics, lambda topic: topic.name)
    request.topics = [topic for topic in request.topics if topic.name]  # '' fails all in Kafka
    return Step(request, version)


def _alter_client_quotas(world: World, request: Any, version: int) -> Step:
    for entry in request.entries:  # Kafka's entities have each type once
        entry.entity = _distinct(entry.entity, lambda part: part.entity_type)
    return Step(request, version)


def _init_producer_id(world: World, request: Any, version: int) -> Step:
    request.transactional_id = world.mostly((None,), ("",), odds=0.1)
    request.producer_id = -1
    if world.producers and world.chance(0.2):
        request.producer_id = world.pick_of(world.producers).producer_id
    elif world.chance(0.1):
        request.producer_id = 12_345
    return Step(request, version)


def _leave_group(world: World, request: Any, version: int) -> Step:
    for member in request.members:
        member.member_id = world.pick_of(MEMBERS)
    return Step(request, version)


def _sync_group(world: World, request: Any, version: int) -> Step:
    for assignment in request.assignments:
        assignment.member_id = world.pick_of(MEMBERS)
    return Step(request, version)


def _list_offsets(world: World, request: Any, version: int) -> Step:
    for topic in request.topics:
        for partition in topic.partitions:
            if partition.timestamp == MAX_TIMESTAMP and topic.name not in BAD_TOPICS:
                topic.name = world.pick_of(WHOLE_TOPICS)  # Kafka may name a deleted record
    return Step(request, version)


def _delete_records(world: World, request: Any, version: int) -> Step:
    for topic in request.topics:
        if topic.name in WHOLE_TOPICS:
            topic.name = "plain"
        topic.partitions = _distinct(topic.partitions, lambda each: each.partition_index)
    request.topics = _distinct(request.topics, lambda topic: topic.name)
    for topic in request.topics:
        if topic.name in FIXED_TOPICS and topic.name != "compacted":
            for partition in topic.partitions:
                partition.offset = min(partition.offset, 10)
    return Step(request, version)


def _describe_quorum(world: World, request: Any, version: int) -> Step:
    for topic in request.topics:
        topic.topic_name = world.pick("__cluster_metadata", "__cluster_metadata", "plain")
        topic.partitions = _distinct(topic.partitions, lambda each: each.partition_index)
    request.topics = _distinct(request.topics, lambda topic: topic.topic_name)
    return Step(request, version)


def _share_offsets(world: World, request: Any, version: int) -> Step:
    # Kafka 4.2 does not respond if a group that is no share group is asked about partitions.
    for group in request.groups:
        group.topics = None
        group.group_id = "no-such-group"
    return Step(request, version)


def _raft_voter(world: World, request: Any, version: int) -> Step:
    request.cluster_id = "another"
    return Step(request, version)


TUNE: Final[dict[int, Tune]] = {
    1: _fetch, 2: _list_offsets, 3: _metadata, 8: _offset_commit, 10: _find_coordinator,
    11: _join_group, 13: _leave_group, 14: _sync_group, 19: _create_topics, 20: _delete_topics,
    9: _offset_fetch, 15: _describe_groups,
    21: _delete_records, 22: _init_producer_id, 32: _describe_configs, 33: _alter_configs,
    37: _create_partitions, 44: _alter_configs, 49: _alter_client_quotas, 55: _describe_quorum,
    61: _describe_producers, 75: _describe_topic_partitions, 80: _raft_voter, 81: _raft_voter,
    90: _share_offsets,
}
WEIGHTS: Final = {0: 6, 1: 6, 2: 4, 3: 3, 8: 3, 9: 3, 19: 0.5, 20: 0.15, 33: 0.2, 44: 0.2, 37: 0.3,
                  80: 0.2, 81: 0.2, 64: 0.2}


def generate(world: World, key: int, version: int) -> Step:
    """A random request of one API and version."""
    if key == 0:
        return produce(world, version)
    made: type[Request] = REQUESTS[key]
    request = fill(world, made, version)
    if len(getattr(request, "topics", None) or ()) != 1 and getattr(request, "timeout", 1) == 0:
        request.timeout = 30_000  # type: ignore[attr-defined]  # another fault might come first
    tune = TUNE.get(key)
    step = None if tune is None else tune(world, request, version)
    return step if step is not None else Step(request, version)

"""Creates, describes and deletes topics, adds partitions, and reads and alters their settings."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from quipu.client.admin.routing import ask_any
from quipu.client.cluster import Cluster
from quipu.client.errors import broker_refused
from quipu.model.errors import Code
from quipu.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from quipu.wire.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from quipu.wire.messages.k20_delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from quipu.wire.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from quipu.wire.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from quipu.wire.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

TOPIC: Final = 2  # the type of a resource that has settings
OWN_SETTING: Final = 1  # Kafka's config source for a value that was set for this topic
_SET: Final = 0
_DELETE: Final = 1


class PartitionDescription(NamedTuple):
    """A partition, its leader and its replicas."""

    partition: int
    leader: int | None  # None while there is none
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class TopicDescription(NamedTuple):
    """A topic that exists; partitions in the order of their numbers."""

    name: str
    topic_id: UUID  # zeros if the broker sends none
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


class CreatedTopic(NamedTuple):
    """A topic that was created just now."""

    topic_id: UUID
    partition_count: int | None  # None if the broker does not report it


class TopicSetting(NamedTuple):
    """A setting that applies to a topic, and whether it was set for this topic alone."""

    value: str | None  # None for a secret
    is_own: bool


def describe_topics(
    cluster: Cluster, names: Collection[str] | None = None
) -> dict[str, TopicDescription]:
    """Topics by name, all if none are named; one that does not exist is left out."""
    asked = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
    response = ask_any(cluster, request, MetadataResponse).response
    if response.error_code:
        raise broker_refused(response.error_code, "cannot describe topics")
    found = {}
    for topic in response.topics:
        if topic.name is None or topic.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION:
            continue
        if topic.error_code and names is not None:
            raise broker_refused(topic.error_code, f"cannot describe topic {topic.name}")
        found[topic.name] = _description(topic)
    return found


def create_topic(
    cluster: Cluster, name: str, *, partitions: int = -1, replicas: int = -1,
    settings: Mapping[str, str] | None = None,
) -> CreatedTopic:
    """Create a topic; -1 partitions or replicas leave the number to the broker."""
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replicas,
        configs=[CreatableTopicConfig(name=key, value=value)
                 for key, value in (settings or {}).items()])
    request = CreateTopicsRequest(topics=[topic], timeout=cluster.settings.request_timeout_ms)
    response, may_repeat = ask_any(
        cluster, request, CreateTopicsResponse,
        lambda found: [each.error_code for each in found.topics])
    for each in response.topics:
        is_made = each.error_code == Code.TOPIC_ALREADY_EXISTS and may_repeat
        if each.error_code and not is_made:
            raise broker_refused(
                each.error_code, f"cannot create topic {name}", each.error_message)
        return CreatedTopic(
            each.topic_id, each.num_partitions if each.num_partitions > 0 else None)
    raise broker_refused(Code.UNKNOWN_SERVER_ERROR, f"cannot create topic {name}")


def delete_topic(cluster: Cluster, name: str) -> None:
    """Delete a topic and all of its records."""
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name, topic_id=UUID(int=0))], topic_names=[name],
        timeout=cluster.settings.request_timeout_ms)
    routed = ask_any(cluster, request, DeleteTopicsResponse,
                     lambda found: [each.error_code for each in found.responses])
    for each in routed.response.responses:
        is_gone = each.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION and routed.may_repeat
        if each.error_code and not is_gone:
            raise broker_refused(
                each.error_code, f"cannot delete topic {name}", each.error_message)


def create_partitions(cluster: Cluster, name: str, count: int) -> None:
    """Raise the number of a topic's partitions to `count`."""
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)],
        timeout=cluster.settings.request_timeout_ms)
    response = ask_any(cluster, request, CreatePartitionsResponse,
                       lambda found: [each.error_code for each in found.results]).response
    for each in response.results:
        if each.error_code:
            raise broker_refused(
                each.error_code, f"cannot add partitions to {name}", each.error_message)


def topic_settings(cluster: Cluster, name: str) -> dict[str, TopicSetting]:
    """Every setting that applies to a topic, by name."""
    resource = DescribeConfigsResource(
        resource_type=TOPIC, resource_name=name, configuration_keys=None)
    response = ask_any(
        cluster, DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse,
        lambda found: [each.error_code for each in found.results]).response
    settings = {}
    for result in response.results:
        if result.error_code:
            raise broker_refused(
                result.error_code, f"cannot read the settings of {name}", result.error_message)
        for each in result.configs:
            settings[each.name] = TopicSetting(each.value, each.config_source == OWN_SETTING)
    return settings


def alter_topic_settings(
    cluster: Cluster, name: str, settings: Mapping[str, str], reset: Iterable[str] = ()
) -> None:
    """Change settings of a topic, and reset others to the broker's defaults."""
    changes = [AlterableConfig(name=key, config_operation=_SET, value=value)
               for key, value in settings.items()]
    changes += [AlterableConfig(name=key, config_operation=_DELETE, value=None) for key in reset]
    request = IncrementalAlterConfigsRequest(resources=[
        AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=changes)])
    response = ask_any(cluster, request, IncrementalAlterConfigsResponse,
                       lambda found: [each.error_code for each in found.responses]).response
    for each in response.responses:
        if each.error_code:
            raise broker_refused(each.error_code, f"cannot alter topic {name}", each.error_message)


def _description(topic: MetadataResponseTopic) -> TopicDescription:
    partitions = [
        PartitionDescription(
            each.partition_index, each.leader_id if each.leader_id >= 0 else None,
            tuple(each.replica_nodes), tuple(each.isr_nodes))
        for each in sorted(topic.partitions, key=lambda each: each.partition_index)]
    return TopicDescription(
        topic.name or "", topic.topic_id, topic.is_internal, tuple(partitions))

"""Topics that become diskless: sealed, then switched; or, until then, called off (D30, D32).

    on chains --begin--> sealed --switch--> diskless
        ^                   |
        +------ cancel -----+

While a partition is sealed, its chain serves reads and takes no writes.  Its head copies all that
is left to the remote tier, enters the log in the control plane of diskless topics, and then reports
that it is ready (broker/diskless/migration.py).  When all heads have, the topic is switched: new
records go to objects, old ones are read from the tier.

What is under way is in the metadata alone: the placements of the partitions say `sealed`.  So it
goes on after the end of any process, also of the controller.

Invariants
    controller.G1  all partitions of a topic are sealed together, switched together, or called off
                   together: each in one decision
    controller.G2  a partition becomes diskless only when it is sealed, and its head has reported,
                   about the version that it has, that tier and control plane have everything.  A
                   head of an earlier version may have missed something: its report does not count
    controller.G3  a switched partition keeps the leader epoch that it was sealed in last: clients
                   ignore metadata with a lower one.  No record on the chain has that epoch
    controller.G4  a sealed topic keeps what its migration needs: its tier, its number of
                   partitions, its chains

Not here: what a head does, and how far it is (broker/diskless), diskless partitions after the
switch (diskless.py).
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, assert_never
from uuid import UUID

from quipu.controller import internal_topics
from quipu.controller.decision import Decision, Numbers
from quipu.controller.derived_chains import words
from quipu.controller.placement import ChainPlacement, DisklessPlacement, LegacyPlacement
from quipu.controller.records import ConfigChanged, PartitionsMoved, PlacementKind, Record
from quipu.controller.resources import ResourceType
from quipu.controller.state import CLUSTER_DEFAULT, ClusterState, Key
from quipu.controller.topic_state import Topic
from quipu.model.chains import MemberState
from quipu.model.diskless_rules import ENABLE, why_unavailable
from quipu.model.errors import Code, RequestError
from quipu.model.ids import NO_NODE, NodeId
from quipu.model.settings import (
    BrokerSettings,
    TopicSettings,
    topic_settings,
    with_dynamic,
)

COMMAND: Final = "quipu topic migrate"


class SealedReport(NamedTuple):
    """The head's report that a sealed partition can be switched; about the set of `version`."""

    topic_id: UUID
    partition: int
    version: int


def begin(state: ClusterState, name: str, settings: BrokerSettings) -> Decision[Topic]:
    """Seal a topic; if it is sealed or diskless already, nothing changes."""
    topic = find(state, name)
    if topic.is_diskless or topic.is_migrating:
        return Decision([], [topic])
    defaults = with_dynamic(settings, state.configs(ResourceType.BROKER, CLUSTER_DEFAULT))
    why = why_not(state, topic, topic_settings(internal_topics.settings_of(topic), defaults),
                  settings)
    if why is not None:
        raise RequestError(f"topic {topic.name} cannot become diskless: {why}",
                           code=Code.INVALID_REQUEST)
    return Decision(list(_sealed(topic, Numbers(state), is_sealed=True)), [topic])


def cancel(state: ClusterState, name: str) -> Decision[Topic]:
    """Let a sealed topic take writes again, under a new epoch."""
    topic = find(state, name)
    if topic.is_diskless:
        raise RequestError(
            f"topic {topic.name} is diskless, and stays it: its new records are in object storage "
            "alone; create another topic, and copy them", code=Code.INVALID_REQUEST)
    if not topic.is_migrating:
        raise RequestError(f"topic {topic.name} is not being migrated", code=Code.INVALID_REQUEST)
    return Decision(list(_sealed(topic, Numbers(state), is_sealed=False)), [topic])


def switch(state: ClusterState, reports: Mapping[Key, int]) -> Decision[None]:
    """Make sealed topics diskless whose heads have all reported (controller.G2).

    `reports`: the versions that they are about, by partition.
    """
    numbers = Numbers(state)
    records: list[Record] = []
    for topic_id in sorted({key[0] for key in reports}):
        topic = state.topics_by_id.get(topic_id)
        if topic is not None and all(
                partition.is_sealed and partition.own_chain is None
                and partition.leader != NO_NODE
                and reports.get((topic_id, index)) == partition.partition_epoch
                for index, partition in enumerate(topic.partitions)):
            records += _switched(state, topic, numbers)
    return Decision(records, [])


def find(state: ClusterState, name: str) -> Topic:
    topic = state.topics.get(name)
    if topic is None:
        raise RequestError(f"there is no topic {name[:80]!r}",
                           code=Code.UNKNOWN_TOPIC_OR_PARTITION)
    return topic


def why_not(
    state: ClusterState, topic: Topic, settings: TopicSettings, broker: BrokerSettings
) -> str | None:
    """Why a topic with these settings cannot become diskless; None if it can."""
    if topic.is_internal:
        return "it is one of the cluster's own topics"
    if (why := why_unavailable(broker)) is not None:
        return why
    return why_unfit(settings, broker) or _why_not_placed(state, topic)


def why_unfit(settings: TopicSettings, broker: BrokerSettings) -> str | None:
    """Why these settings of a topic do not allow its migration (controller.G4)."""
    if not broker.remote_log_storage_system_enable:
        return ("its records are read from a remote tier then: set "
                "remote.log.storage.system.enable=true on the brokers and restart them")
    if not settings.remote_storage_enable:
        return ("its records are read from the remote tier then: set remote.storage.enable=true "
                "for the topic")
    if settings.remote_log_copy_disable:
        return ("the rest of its records must be copied to the remote tier: set "
                "remote.log.copy.disable=false for the topic")
    if settings.cleanup_policy != ("delete",):
        return (f"its cleanup.policy is {','.join(settings.cleanup_policy)}, and a diskless topic "
                "cannot be compacted: set cleanup.policy=delete")
    return None


def check_changes(topic: Topic, settings: TopicSettings, broker: BrokerSettings) -> None:
    """Raise if a topic that is being migrated may not have these settings (controller.G4)."""
    if topic.is_migrating and (why := why_unfit(settings, broker)) is not None:
        raise RequestError(
            f"topic {topic.name} is being migrated to diskless: {why}, or call the migration off "
            f"with `{COMMAND} {topic.name} --cancel`", code=Code.INVALID_CONFIG)


def check_fixed(topic: Topic, what: str) -> None:
    """Raise if a topic is being migrated, which forbids `what` (controller.G4)."""
    if topic.is_migrating:
        raise RequestError(
            f"topic {topic.name} is being migrated to diskless, and cannot be {what} before that "
            f"is done, or called off with `{COMMAND} {topic.name} --cancel`",
            code=Code.INVALID_REQUEST)


def _why_not_placed(state: ClusterState, topic: Topic) -> str | None:
    for index, partition in enumerate(topic.partitions):
        placement = partition.placement
        match placement:
            case ChainPlacement():
                pass
            case LegacyPlacement():
                return "it is on no chain yet: quipu chain create"
            case DisklessPlacement():
                return f"partition {index} is diskless already"
            case _:
                assert_never(placement)
        if placement.moving_to is not None:
            target = words(state, state.chains[placement.moving_to])
            return (f"partition {index} moves to {target}: wait until it is there, or call the "
                    "move off")
        if placement.own_chain is not None:
            return f"a replica of partition {index} has failed: wait until it is repaired"
    for name in sorted(topic.chains):
        chain = state.chains[name]
        away = [state.brokers[member.node_id].name for member in chain.members
                if member.state is not MemberState.SERVING or not state.is_live(member)]
        if away:
            does = "do" if len(away) > 1 else "does"
            return (f"{', '.join(away)} of {words(state, chain)} {does} not serve: wait until all "
                    "of its nodes do")
    return None


def _sealed(topic: Topic, numbers: Numbers, *, is_sealed: bool) -> Iterable[Record]:
    """Seal all partitions, or none, under a new epoch (controller.G1)."""
    groups: dict[ChainPlacement, list[int]] = {}
    for index, partition in enumerate(topic.partitions):
        placement = partition.placement
        assert isinstance(placement, ChainPlacement), placement
        key = ChainPlacement(placement.chain, placement.moving_to, placement.joined)
        groups.setdefault(key, []).append(index)
    for placement, partitions in groups.items():
        yield PartitionsMoved(
            topic_id=topic.topic_id, partitions=partitions, chain=placement.chain,
            moving_to=placement.moving_to, joined=placement.joined, epoch=numbers.epoch(),
            version=numbers.version(), kind=PlacementKind.CHAIN, sealed=is_sealed)


def _switched(state: ClusterState, topic: Topic, numbers: Numbers) -> Iterable[Record]:
    """Place all partitions where their chains are, and make the topic's setting say so."""
    groups: dict[tuple[str, int, NodeId], list[int]] = {}
    for index, partition in enumerate(topic.partitions):
        placement = partition.placement
        assert isinstance(placement, ChainPlacement), placement
        groups.setdefault(
            (placement.chain, partition.leader_epoch, partition.leader), []).append(index)
    version = numbers.version()
    # Partition 0 comes last: a topic is diskless as soon as that one is.
    for (chain, epoch, leader), partitions in sorted(
            groups.items(), key=lambda each: -each[1][0]):
        yield PartitionsMoved(
            topic_id=topic.topic_id, partitions=partitions, kind=PlacementKind.DISKLESS,
            replicas=list(state.chains[chain].nodes), leader=leader,
            epoch=epoch, version=version)  # controller.G3
    yield ConfigChanged(resource_type=ResourceType.TOPIC, resource_name=topic.name, name=ENABLE,
                        value="true")

"""Create, delete and extend topics: what Kafka allows, and the records that do it.

Each function looks at the state, answers every topic asked for, and writes records only for those
that may go on: one bad topic does not fail the others.  A refusal is a `RequestError` inside this
module, and an answer with its code outside.

Not here: legal names (model/topics), settings of topics (configs), which broker gets a partition
(placement).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from quipu.controller.decision import Decision
from quipu.controller.placement import place
from quipu.controller.records import (
    ConfigRecord,
    PartitionRecord,
    PartitionsAdded,
    Record,
    TopicCreated,
    TopicDeleted,
)
from quipu.controller.state import ClusterState, Topic, topic_of
from quipu.model.errors import Code, QuipuError, RequestError
from quipu.model.ids import ZERO_UUID
from quipu.model.settings import BrokerSettings, topic_settings
from quipu.model.topics import PARTITION_COUNT_MAX, check_topic_name, clash_key, is_internal

PARTITIONS_PER_REQUEST_MAX: Final = 10_000
USE_DEFAULT: Final = -1

Assignment = Sequence[int]  # the brokers of one partition, the leader first


class NewTopic(NamedTuple):
    """A topic that someone wants."""

    name: str
    partition_count: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: Sequence[tuple[int, Assignment]] = ()  # (partition, its brokers)
    configs: Sequence[tuple[str, str | None]] = ()


class NewPartitions(NamedTuple):
    """A topic that shall have `total` partitions."""

    name: str
    total: int  # how many it shall have
    assignments: Sequence[Assignment] | None = None


class TopicAnswer(NamedTuple):
    """What became of one topic; `topic` is what it is, was, or (validate only) would be."""

    name: str | None
    topic_id: UUID = ZERO_UUID
    code: Code = Code.NONE
    message: str | None = None
    topic: Topic | None = None


def create_topics(
    state: ClusterState,
    wanted: Sequence[NewTopic],
    settings: BrokerSettings,
    new_id: Callable[[], UUID],
) -> Decision[TopicAnswer]:
    """Topics that clients asked for; the cluster's own are refused."""
    repeated = _repeated(topic.name for topic in wanted)
    budget = _Budget()
    records: list[Record] = []
    answers: list[TopicAnswer] = []
    for topic in {topic.name: topic for topic in wanted}.values():
        try:
            _check_new_name(state, topic.name, repeated, records)
            record = plan_topic(state, topic, settings, new_id)
            budget.take(len(record.partitions))
        except QuipuError as error:
            answers.append(TopicAnswer(topic.name, code=error.code, message=str(error)))
        else:
            records.append(record)
            made = topic_of(record)
            answers.append(TopicAnswer(topic.name, made.topic_id, topic=made))
    return Decision(records, answers)


def plan_topic(
    state: ClusterState, wanted: NewTopic, settings: BrokerSettings, new_id: Callable[[], UUID]
) -> TopicCreated:
    """The record of a topic whose name is good; raises if the rest of it is not."""
    configs = _checked_configs(wanted.configs, settings)
    if wanted.assignments:
        placed = _manual_assignments(state, wanted)
    else:
        placed = _automatic_assignments(state, wanted, settings)
    return TopicCreated(
        name=wanted.name,
        topic_id=new_id(),
        partitions=[_partition(brokers) for brokers in placed],
        configs=configs,
    )


def delete_topics(
    state: ClusterState, wanted: Sequence[tuple[str | None, UUID]], settings: BrokerSettings
) -> Decision[TopicAnswer]:
    """Delete topics by name, or by id where it is not zero."""
    found = [state.find_topic(name, topic_id) for name, topic_id in wanted]
    repeated = _repeated(topic.name for topic in found if topic is not None)
    records: list[Record] = []
    answers: list[TopicAnswer] = []
    for (name, topic_id), topic in zip(wanted, found, strict=True):
        try:
            answer = _deletable(name, topic_id, topic, settings)
            if answer.name in repeated:
                raise RequestError(f"topic {answer.name} is named twice in one request",
                                   code=Code.INVALID_REQUEST)
        except QuipuError as error:
            answers.append(TopicAnswer(name, topic_id, error.code, str(error)))
        else:
            records.append(TopicDeleted(topic_id=answer.topic_id))
            answers.append(answer)
    return Decision(records, answers)


def create_partitions(
    state: ClusterState, wanted: Sequence[NewPartitions]
) -> Decision[TopicAnswer]:
    """More partitions for existing topics; never fewer."""
    repeated = _repeated(topic.name for topic in wanted)
    budget = _Budget()
    records: list[Record] = []
    answers: list[TopicAnswer] = []
    for request in {topic.name: topic for topic in wanted}.values():
        try:
            if request.name in repeated:
                raise RequestError(f"topic {request.name} is named twice in one request",
                                   code=Code.INVALID_REQUEST)
            record = _plan_partitions(state, request)
            budget.take(len(record.partitions))
        except QuipuError as error:
            answers.append(TopicAnswer(request.name, code=error.code, message=str(error)))
        else:
            records.append(record)
            answers.append(TopicAnswer(request.name, record.topic_id))
    return Decision(records, answers)


class _Budget:
    """How many partitions one request may still add: a request must not stall the others."""

    def __init__(self) -> None:
        self._left = PARTITIONS_PER_REQUEST_MAX

    def take(self, count: int) -> None:
        if count > self._left:
            raise RequestError(
                f"one request may add {PARTITIONS_PER_REQUEST_MAX} partitions at most; "
                f"{self._left} are left for this topic's {count}: send several requests",
                code=Code.POLICY_VIOLATION)
        self._left -= count


def _check_new_name(
    state: ClusterState, name: str, repeated: set[str], planned: Sequence[Record]
) -> None:
    if name in repeated:
        raise RequestError(f"topic {name} is named twice in one request",
                           code=Code.INVALID_REQUEST)
    check_topic_name(name)
    if is_internal(name):
        raise RequestError(f"{name} is the cluster's own topic; it is created when it is needed",
                           code=Code.INVALID_TOPIC_EXCEPTION)
    if name in state.topics:
        raise RequestError(f"topic {name} exists already", code=Code.TOPIC_ALREADY_EXISTS)
    clash = state.find_clash(name) or _clash_within(name, planned)
    if clash is not None:
        raise RequestError(
            f"topic {name} would clash with {clash}: they differ only in '.' and '_', "
            "which metrics cannot tell apart", code=Code.INVALID_TOPIC_EXCEPTION)


def _clash_within(name: str, planned: Sequence[Record]) -> str | None:
    """A topic of the same request that `name` clashes with."""
    return next((record.name for record in planned if isinstance(record, TopicCreated)
                 and clash_key(record.name) == clash_key(name)), None)


def _checked_configs(
    configs: Iterable[tuple[str, str | None]], settings: BrokerSettings
) -> list[ConfigRecord]:
    overrides: dict[str, str] = {}
    for name, value in configs:
        if value is None:
            raise RequestError(f"setting {name} has no value; leave it out to inherit the broker's",
                               code=Code.INVALID_CONFIG)
        if name in overrides:
            raise RequestError(f"setting {name} is given twice", code=Code.INVALID_CONFIG)
        overrides[name] = value
    topic_settings(overrides, settings)
    return [ConfigRecord(name=name, value=value) for name, value in overrides.items()]


def _manual_assignments(state: ClusterState, wanted: NewTopic) -> list[Assignment]:
    for name, value in (("number of partitions", wanted.partition_count),
                        ("replication factor", wanted.replication_factor)):
        if value != USE_DEFAULT:
            raise RequestError(f"with a manual assignment the {name} must be -1, not {value}",
                               code=Code.INVALID_REQUEST)
    placed = dict(wanted.assignments)
    if len(placed) != len(wanted.assignments) or sorted(placed) != list(range(len(placed))):
        raise RequestError("a manual assignment must name every partition from 0 on, each once",
                           code=Code.INVALID_REPLICA_ASSIGNMENT)
    ordered = [placed[partition] for partition in range(len(placed))]
    _check_assignments(state, ordered, len(ordered[0]))
    return ordered


def _check_assignments(
    state: ClusterState, assignments: Sequence[Assignment], replicas: int
) -> None:
    for brokers in assignments:
        if not brokers:
            problem = "is empty"
        elif len(set(brokers)) != len(brokers):
            problem = f"{list(brokers)} names a broker twice"
        elif len(brokers) != replicas:
            problem = f"{list(brokers)} has not got {replicas} replicas as the others have"
        elif unknown := [node for node in brokers if node not in state.brokers]:
            problem = f"{list(brokers)} names broker {unknown[0]}, which is not registered"
        else:
            continue
        raise RequestError(f"a manual assignment {problem}", code=Code.INVALID_REPLICA_ASSIGNMENT)


def _automatic_assignments(
    state: ClusterState, wanted: NewTopic, settings: BrokerSettings
) -> list[Assignment]:
    count, replicas = wanted.partition_count, wanted.replication_factor
    count = settings.num_partitions if count == USE_DEFAULT else count
    replicas = settings.default_replication_factor if replicas == USE_DEFAULT else replicas
    if count < 1:
        raise RequestError(f"{count} partitions: there must be one at least, or -1 for the default",
                           code=Code.INVALID_PARTITIONS)
    _check_count(count)
    if replicas < 1:
        raise RequestError(
            f"replication factor {replicas}: it must be 1 at least, or -1 for the default",
            code=Code.INVALID_REPLICATION_FACTOR)
    if replicas > len(state.brokers):
        raise RequestError(
            f"replication factor {replicas} needs as many brokers, and {len(state.brokers)} "
            "are registered", code=Code.INVALID_REPLICATION_FACTOR)
    return _place(state, range(count), replicas)


def _place(state: ClusterState, partitions: range, replicas: int) -> list[Assignment]:
    brokers = list(state.brokers)
    return [place(brokers, partition=partition, replicas=replicas) for partition in partitions]


def _check_count(count: int) -> None:
    if count > PARTITION_COUNT_MAX:
        raise RequestError(f"{count} partitions: a topic may have {PARTITION_COUNT_MAX} at most",
                           code=Code.INVALID_PARTITIONS)


def _partition(brokers: Assignment) -> PartitionRecord:
    return PartitionRecord(
        replicas=list(brokers), isr=list(brokers), leader=brokers[0],
        leader_epoch=0, partition_epoch=0)


def _deletable(
    name: str | None, topic_id: UUID, topic: Topic | None, settings: BrokerSettings
) -> TopicAnswer:
    if (name is None) == (topic_id == ZERO_UUID):
        raise RequestError("name a topic by its name or by its id, not by both or neither",
                           code=Code.INVALID_REQUEST)
    if topic is None:
        code = Code.UNKNOWN_TOPIC_OR_PARTITION if name is not None else Code.UNKNOWN_TOPIC_ID
        raise RequestError(f"topic {name if name is not None else topic_id} does not exist",
                           code=code)
    if topic.is_internal:
        raise RequestError(f"{topic.name} is the cluster's own topic and cannot be deleted",
                           code=Code.INVALID_REQUEST)
    if not settings.delete_topic_enable:
        raise RequestError("delete.topic.enable is false on this cluster",
                           code=Code.TOPIC_DELETION_DISABLED)
    return TopicAnswer(topic.name, topic.topic_id, topic=topic)


def _plan_partitions(state: ClusterState, wanted: NewPartitions) -> PartitionsAdded:
    topic = state.topics.get(wanted.name)
    if topic is None:
        raise RequestError(f"topic {wanted.name} does not exist",
                           code=Code.UNKNOWN_TOPIC_OR_PARTITION)
    if topic.is_internal:
        raise RequestError(f"{topic.name} is the cluster's own topic; its partitions are fixed",
                           code=Code.INVALID_REQUEST)
    have = len(topic.partitions)
    if wanted.total <= have:
        raise RequestError(f"topic {topic.name} has {have} partitions; {wanted.total} is not more",
                           code=Code.INVALID_PARTITIONS)
    _check_count(wanted.total)
    placed = _added_assignments(state, topic, wanted)
    return PartitionsAdded(
        topic_id=topic.topic_id, partitions=[_partition(brokers) for brokers in placed])


def _added_assignments(
    state: ClusterState, topic: Topic, wanted: NewPartitions
) -> Sequence[Assignment]:
    have = len(topic.partitions)
    if wanted.assignments is None:
        if topic.replication_factor > len(state.brokers):
            raise RequestError(
                f"topic {topic.name} has {topic.replication_factor} replicas, and only "
                f"{len(state.brokers)} brokers are registered",
                code=Code.INVALID_REPLICATION_FACTOR)
        return _place(state, range(have, wanted.total), topic.replication_factor)
    if len(wanted.assignments) != wanted.total - have:
        raise RequestError(
            f"{wanted.total - have} partitions would be added, but {len(wanted.assignments)} "
            "assignments are given", code=Code.INVALID_REPLICA_ASSIGNMENT)
    _check_assignments(state, wanted.assignments, topic.replication_factor)
    return wanted.assignments


def _repeated(names: Iterable[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}

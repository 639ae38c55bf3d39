"""Create, delete and extend topics: what Kafka allows, and the records that do it.

Each function looks at the state, answers every topic asked for, and writes records only for those
that may go on: one bad topic does not fail the others.  A refusal is a `RequestError` inside this
module, and an answer with its code outside.

A topic's partitions are on one chain, and have as many replicas as that has nodes; an assignment
by hand must name the nodes of a chain.  The cluster's own topics are spread over all chains.

Not here: legal names (model/topics), settings of topics (configs), which chain gets a topic
(placement).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple
from uuid import UUID

from quipu.controller.decision import Decision, Numbers
from quipu.controller.internal_topics import refuse
from quipu.controller.members import NO_CHAIN, Chain, Place, partition_run
from quipu.controller.placement import Chance, Placing, Weigh, no_chance, spread, topic_count
from quipu.controller.records import (
    ConfigRecord,
    PartitionRun,
    PartitionsAdded,
    Record,
    TopicCreated,
    TopicDeleted,
)
from quipu.controller.state import ClusterState, Topic
from quipu.model.errors import Code, QuipuError, RequestError
from quipu.model.ids import ZERO_UUID
from quipu.model.settings import TOPIC, BrokerSettings, check
from quipu.model.topics import PARTITION_COUNT_MAX, check_topic_name, clash_key, is_internal

PARTITIONS_PER_REQUEST_MAX: Final = 10_000
MAX_PARTITIONS: Final = "max.partitions"
USE_DEFAULT: Final = -1

Assignment = Sequence[int]  # the brokers of one partition


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
    limit: str = ""  # the setting that forbids it, if one of the limits does


class Whole:
    """What holds for a request as a whole, though it is decided in parts.

    A name may come once, and the request may add PARTITIONS_PER_REQUEST_MAX partitions.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._repeated = {name for name, count in Counter(names).items() if count > 1}
        self._left = PARTITIONS_PER_REQUEST_MAX

    def check(self, name: str) -> None:
        """Raise if the request names `name` several times."""
        if name in self._repeated:
            raise RequestError(f"topic {name} is named twice in one request",
                               code=Code.INVALID_REQUEST)

    def take(self, count: int) -> None:
        """Raise if the request would add too many partitions."""
        if count > self._left:
            raise RequestError(
                f"one request may add {PARTITIONS_PER_REQUEST_MAX} partitions at most; "
                f"{self._left} are left for this topic's {count}: send several requests",
                code=Code.POLICY_VIOLATION)
        self._left -= count


def create_topics(
    state: ClusterState,
    wanted: Sequence[NewTopic],
    settings: BrokerSettings,
    new_id: Callable[[], UUID],
    *,
    chance: Chance = no_chance,
    weigh: Weigh = topic_count,
    whole: Whole | None = None,
) -> Decision[TopicAnswer]:
    """Topics that clients asked for; the cluster's own are refused."""
    whole = whole or Whole(topic.name for topic in wanted)
    placing, version = Placing(state, chance, weigh), Numbers(state).version()
    room = _Room(state, settings.max_partitions)
    records: list[Record] = []
    answers: list[TopicAnswer] = []
    planned: dict[str, str] = {}  # names by what they clash by
    for topic in {topic.name: topic for topic in wanted}.values():
        try:
            whole.check(topic.name)
            _check_new_name(state, topic.name, planned)
            record = _plan(state, topic, settings, placing)
            count = sum(run.count for run in record.runs)
            room.check(count)
            whole.take(count)
            room.take(count)
        except QuipuError as error:
            answers.append(_refused(topic.name, error))
        else:
            record.topic_id = new_id()
            _stamp(record.runs, version)
            records.append(record)
            planned[clash_key(topic.name)] = topic.name
            made = state.topic_of(record)
            placing.took(made.chains)
            answers.append(TopicAnswer(topic.name, made.topic_id, topic=made))
    return Decision(records, answers)


def plan_topic(
    state: ClusterState,
    wanted: NewTopic,
    settings: BrokerSettings,
    new_id: Callable[[], UUID],
    *,
    chance: Chance = no_chance,
) -> TopicCreated:
    """The record of one of the cluster's own topics; raises if it is none, or cannot be made."""
    if not is_internal(wanted.name):
        raise RequestError(f"{wanted.name[:80]!r} is not one of the cluster's own topics",
                           code=Code.INVALID_TOPIC_EXCEPTION)
    record = _plan(state, wanted, settings, Placing(state, chance))
    record.topic_id = new_id()
    _stamp(record.runs, Numbers(state).version())
    return record


def _plan(
    state: ClusterState, wanted: NewTopic, settings: BrokerSettings, placing: Placing
) -> TopicCreated:
    configs = _checked_configs(wanted.configs)
    if wanted.assignments:
        chains = _manual_assignments(state, wanted)
    else:
        chains = _automatic_assignments(state, wanted, settings, placing)
    return TopicCreated(
        name=wanted.name, configs=configs, runs=_runs(chains))


def delete_topics(
    state: ClusterState,
    wanted: Sequence[tuple[str | None, UUID]],
    settings: BrokerSettings,
    *,
    whole: Whole | None = None,
) -> Decision[TopicAnswer]:
    """Delete topics by name, or by id where it is not zero.

    `whole` is of the request, as the topics were when it came; some may be there only now.
    """
    now = Whole(topic_names(state, wanted))
    found = [state.find_topic(name, topic_id) for name, topic_id in wanted]
    records: list[Record] = []
    answers: list[TopicAnswer] = []
    for (name, topic_id), topic in zip(wanted, found, strict=True):
        try:
            answer = _deletable(name, topic_id, topic, settings)
            for each in (now, whole or now):
                each.check(answer.name or "")
        except QuipuError as error:
            answers.append(TopicAnswer(name, topic_id, error.code, str(error)))
        else:
            records.append(TopicDeleted(topic_id=answer.topic_id))
            answers.append(answer)
    return Decision(records, answers)


def topic_names(state: ClusterState, wanted: Iterable[tuple[str | None, UUID]]) -> Iterator[str]:
    """The names of those topics, by name or id, that there are."""
    for name, topic_id in wanted:
        topic = state.find_topic(name, topic_id)
        if topic is not None:
            yield topic.name


def create_partitions(
    state: ClusterState,
    wanted: Sequence[NewPartitions],
    settings: BrokerSettings,
    *,
    whole: Whole | None = None,
) -> Decision[TopicAnswer]:
    """More partitions for existing topics; never fewer."""
    whole = whole or Whole(topic.name for topic in wanted)
    room, version = _Room(state, settings.max_partitions), Numbers(state).version()
    records: list[Record] = []
    answers: list[TopicAnswer] = []
    for request in {topic.name: topic for topic in wanted}.values():
        try:
            whole.check(request.name)
            record = _plan_partitions(state, request)
            count = sum(run.count for run in record.runs)
            room.check(count)
            whole.take(count)
            room.take(count)
        except QuipuError as error:
            answers.append(_refused(request.name, error))
        else:
            _stamp(record.runs, version)
            records.append(record)
            answers.append(TopicAnswer(request.name, record.topic_id))
    return Decision(records, answers)


class TooManyPartitions(RequestError):
    """There would be more partitions than `max.partitions` allows."""

    code = Code.POLICY_VIOLATION


def _refused(name: str, error: QuipuError) -> TopicAnswer:
    return TopicAnswer(name, code=error.code, message=str(error),
                       limit=MAX_PARTITIONS if isinstance(error, TooManyPartitions) else "")


class _Room:
    """How many partitions there may still be: `max.partitions` of all topics together."""

    def __init__(self, state: ClusterState, count_max: int) -> None:
        self._count = state.partition_count
        self._count_max = count_max

    def check(self, count: int) -> None:
        if self._count + count > self._count_max:
            raise TooManyPartitions(
                f"the cluster has {self._count} partitions, and {self._count_max} is the most "
                f"({MAX_PARTITIONS}): there is no room for {count} more; delete topics, or raise "
                "it")

    def take(self, count: int) -> None:
        self._count += count


def _check_new_name(state: ClusterState, name: str, planned: Mapping[str, str]) -> None:
    check_topic_name(name)
    refuse(name, "created: it comes into being when it is needed")
    if name in state.topics:
        raise RequestError(f"topic {name} exists already", code=Code.TOPIC_ALREADY_EXISTS)
    clash = state.find_clash(name) or planned.get(clash_key(name))
    if clash is not None:
        raise RequestError(
            f"topic {name} would clash with {clash}: they differ only in '.' and '_', "
            "which metrics cannot tell apart", code=Code.INVALID_TOPIC_EXCEPTION)


def _checked_configs(configs: Iterable[tuple[str, str | None]]) -> list[ConfigRecord]:
    overrides: dict[str, str] = {}
    for name, value in configs:
        if value is None:
            raise RequestError(f"setting {name} has no value; leave it out to inherit the broker's",
                               code=Code.INVALID_CONFIG)
        if name in overrides:
            raise RequestError(f"setting {name} is given twice", code=Code.INVALID_CONFIG)
        overrides[name] = value
    check(TOPIC, overrides)
    return [ConfigRecord(name=name, value=value) for name, value in overrides.items()]


def _manual_assignments(state: ClusterState, wanted: NewTopic) -> list[Chain]:
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
    return _assigned_chains(state, ordered, len(ordered[0]))


def _assigned_chains(
    state: ClusterState, assignments: Sequence[Assignment], replicas: int
) -> list[Chain]:
    """The chains that the assignments name by their nodes."""
    found = {frozenset[int](chain.nodes): chain for chain in state.chains.values()}
    chains = []
    for brokers in assignments:
        if not brokers:
            problem = "is empty"
        elif len(set(brokers)) != len(brokers):
            problem = f"{list(brokers)} names a broker twice"
        elif len(brokers) != replicas:
            problem = f"{list(brokers)} has not got {replicas} replicas as the others have"
        elif unknown := [node for node in brokers if node not in state.brokers]:
            problem = f"{list(brokers)} names broker {unknown[0]}, which is not registered"
        elif (chain := found.get(frozenset(brokers))) is None:
            problem = f"{list(brokers)} is no chain; {chains_in_words(state)}"
        else:
            chains.append(chain)
            continue
        raise RequestError(f"a manual assignment {problem}", code=Code.INVALID_REPLICA_ASSIGNMENT)
    return chains


def chains_in_words(state: ClusterState) -> str:
    """What there is to choose from, for a message."""
    if not state.chains:
        return "there is no chain yet: quipu chain create"
    return "there are " + ", ".join(
        f"{name} {sorted(state.chains[name].nodes)}" for name in sorted(state.chains))


def _automatic_assignments(
    state: ClusterState, wanted: NewTopic, settings: BrokerSettings, placing: Placing
) -> list[Chain]:
    count, replicas = wanted.partition_count, wanted.replication_factor
    count = settings.num_partitions if count == USE_DEFAULT else count
    if count < 1:
        raise RequestError(f"{count} partitions: there must be one at least, or -1 for the default",
                           code=Code.INVALID_PARTITIONS)
    _check_count(count)
    if is_internal(wanted.name):
        return spread(_chains_of_length(state, 0), count)
    if replicas < 1 and replicas != USE_DEFAULT:
        raise RequestError(
            f"replication factor {replicas}: it must be 1 at least, or -1 for the default",
            code=Code.INVALID_REPLICATION_FACTOR)
    if replicas == USE_DEFAULT:
        replicas = settings.default_replication_factor
    return [placing.choose(_chains_of_length(state, replicas))] * count


def _chains_of_length(state: ClusterState, replicas: int) -> list[Chain]:
    """Chains of that many nodes; with 0, all of them."""
    if not state.chains:
        raise RequestError("there is no chain yet: quipu chain create",
                           code=Code.INVALID_REPLICATION_FACTOR)
    chains = [chain for chain in state.chains.values() if replicas in (0, len(chain.members))]
    if not chains:
        lengths = sorted({len(chain.members) for chain in state.chains.values()})
        raise RequestError(
            f"replication factor {replicas}: a topic has as many replicas as its chain has nodes; "
            f"there are chains of {', '.join(map(str, lengths))}, and -1 stands for any",
            code=Code.INVALID_REPLICATION_FACTOR)
    return chains


def _check_count(count: int) -> None:
    if count > PARTITION_COUNT_MAX:
        raise RequestError(f"{count} partitions: a topic may have {PARTITION_COUNT_MAX} at most",
                           code=Code.INVALID_PARTITIONS)


def _runs(chains: Iterable[Chain]) -> list[PartitionRun]:
    """Partitions on these chains, in this order."""
    return [partition_run(Place(name), sum(1 for _ in run))
            for name, run in groupby(chain.name for chain in chains)]


def _stamp(runs: Iterable[PartitionRun], version: int) -> None:
    """Mark partitions as changed now."""
    for run in runs:
        run.version = version


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
    refuse(topic.name, "deleted")
    if not settings.delete_topic_enable:
        raise RequestError("delete.topic.enable is false on this cluster",
                           code=Code.TOPIC_DELETION_DISABLED)
    return TopicAnswer(topic.name, topic.topic_id, topic=topic)


def _plan_partitions(state: ClusterState, wanted: NewPartitions) -> PartitionsAdded:
    topic = state.topics.get(wanted.name)
    if topic is None:
        raise RequestError(f"topic {wanted.name} does not exist",
                           code=Code.UNKNOWN_TOPIC_OR_PARTITION)
    refuse(topic.name, "given more partitions")
    have = len(topic.partitions)
    if wanted.total <= have:
        raise RequestError(f"topic {topic.name} has {have} partitions; {wanted.total} is not more",
                           code=Code.INVALID_PARTITIONS)
    _check_count(wanted.total)
    return PartitionsAdded(
        topic_id=topic.topic_id, runs=_runs(_added_chains(state, topic, wanted)))


def _added_chains(
    state: ClusterState, topic: Topic, wanted: NewPartitions
) -> Sequence[Chain]:
    added = wanted.total - len(topic.partitions)
    if wanted.assignments is None:
        place = topic.partitions[0].place
        if place.chain == NO_CHAIN:
            raise RequestError(f"topic {topic.name} is on no chain yet: quipu chain create",
                               code=Code.INVALID_REPLICATION_FACTOR)
        return [state.chains[place.moving_to or place.chain]] * added
    if len(wanted.assignments) != added:
        raise RequestError(
            f"{added} partitions would be added, but {len(wanted.assignments)} "
            "assignments are given", code=Code.INVALID_REPLICA_ASSIGNMENT)
    return _assigned_chains(state, wanted.assignments, topic.replication_factor)

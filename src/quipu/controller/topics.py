"""Create, delete and extend topics: what Kafka allows, and the records that do it.

Each function reads the state, returns a result for every topic of the request, and writes records
only for those that pass: one bad topic does not fail the others.  A refusal is a `RequestError`
inside this module, and a result with its code outside.

Not here: legal names (model/topics.py), settings of topics (configs.py), which nodes get a
partition (assignments.py), or which broker a diskless one (diskless.py), the chains of those nodes
(derived_chains.py), how many partitions there may be (topic_limits.py).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple
from uuid import UUID, uuid5

from quipu.controller import diskless
from quipu.controller.assignments import (
    added_orders,
    automatic_orders,
    check_count,
    manual_orders,
)
from quipu.controller.conversions import added_count, chain_run
from quipu.controller.decision import Decision, Numbers
from quipu.controller.derived_chains import DerivedChains, Order
from quipu.controller.internal_topics import refuse
from quipu.controller.migration import check_fixed
from quipu.controller.placement import ChainPlacement
from quipu.controller.placer import ChainPlacer, ChainWeight, Chance, no_chance, topic_count
from quipu.controller.records import (
    ConfigRecord,
    PartitionRun,
    PartitionsAdded,
    Record,
    TopicCreated,
    TopicDeleted,
)
from quipu.controller.state import FIRST_VERSION, ClusterState
from quipu.controller.topic_limits import (
    MAX_PARTITIONS,
    PartitionBudget,
    RequestLimits,
    TooManyPartitions,
)
from quipu.controller.topic_requests import NewPartitions, NewTopic
from quipu.controller.topic_state import Topic
from quipu.model.diskless_rules import DISKLESS, check_diskless, why_unavailable
from quipu.model.errors import Code, QuipuError, RequestError
from quipu.model.ids import ZERO_UUID
from quipu.model.settings import TOPIC, BrokerSettings, check, topic_settings
from quipu.model.tiering_rules import TIERING, check_tiering
from quipu.model.topics import check_topic_name, clash_key, is_internal


class TopicResult(NamedTuple):
    """The outcome for one topic; `topic` is what it is, was, or (validate only) would be."""

    name: str | None
    topic_id: UUID = ZERO_UUID
    code: Code = Code.NONE
    message: str | None = None
    topic: Topic | None = None
    limit: str = ""  # the setting that forbids it, if one of the limits does


def create_topics(
    state: ClusterState,
    wanted: Sequence[NewTopic],
    settings: BrokerSettings,
    new_id: Callable[[], UUID],
    *,
    chance: Chance = no_chance,
    weigh: ChainWeight = topic_count,
    limits: RequestLimits | None = None,
    request_id: UUID | None = None,
) -> Decision[TopicResult]:
    """Create topics that clients request; the cluster's own are refused.

    With a `request_id`, ids of topics follow from it.  So if the same request was carried out
    before, and its response was lost, its topics are recognised and are results, not errors.
    """
    limits = limits or RequestLimits(topic.name for topic in wanted)
    numbers = Numbers(state)
    version = numbers.version()
    placers = _Placers(ChainPlacer(state, chance, weigh), DerivedChains(state, numbers),
                       diskless.Placer(state))
    room = PartitionBudget(state, settings.max_partitions)
    records: list[Record] = []
    results: list[TopicResult] = []
    planned: dict[str, str] = {}  # names by what they clash by
    known = 0
    for topic in {topic.name: topic for topic in wanted}.values():
        topic_id = None if request_id is None else uuid5(request_id, topic.name)
        if topic_id is not None and (there := state.topics_by_id.get(topic_id)) is not None:
            known += 1
            results.append(TopicResult(topic.name, topic_id, topic=there))
            continue
        try:
            limits.check(topic.name)
            _check_new_name(state, topic.name, planned)
            record = _plan(state, topic, settings, placers)
            count = sum(run.count for run in record.runs)
            room.check(count)
            limits.take(count)
            room.take(count)
        except QuipuError as error:
            results.append(_refused(topic.name, error))
        else:
            record.topic_id = topic_id or new_id()
            _stamp(record.runs, version)
            records.append(record)
            planned[clash_key(topic.name)] = topic.name
            made = state.topic_of(record, placers.derived.chains)
            assert len(made.partitions) == count, (made.name, count)  # controller.S3
            assert made.name not in state.topics, made.name  # controller.S2
            placers.chain.took(placers.derived.chains[name] for name in made.chains)
            results.append(TopicResult(topic.name, made.topic_id, topic=made))
    assert len(results) == len({topic.name for topic in wanted}), results
    assert len(records) + known == sum(result.code is Code.NONE for result in results), results
    return Decision(_with_chains(records, placers.derived), results)


def create_internal_topics(
    state: ClusterState,
    wanted: Sequence[NewTopic],
    settings: BrokerSettings,
    new_id: Callable[[], UUID],
    *,
    chance: Chance = no_chance,
) -> Decision[None]:
    """Create those of the cluster's own topics that do not exist; raises for any other name."""
    numbers = Numbers(state)
    version = numbers.version()
    placers = _Placers(ChainPlacer(state, chance), DerivedChains(state, numbers),
                       diskless.Placer(state))
    records: list[Record] = []
    for topic in {topic.name: topic for topic in wanted}.values():
        if not is_internal(topic.name):
            raise RequestError(f"{topic.name[:80]!r} is not one of the cluster's own topics",
                               code=Code.INVALID_TOPIC_EXCEPTION)
        if topic.name in state.topics:
            continue
        record = _plan(state, topic, settings, placers)
        record.topic_id = new_id()
        _stamp(record.runs, version)
        assert record.runs, record.name  # controller.S3
        records.append(record)
    assert len(records) <= len(wanted), records
    return Decision(_with_chains(records, placers.derived), [])


class _Placers(NamedTuple):
    """What places the partitions of one decision."""

    chain: ChainPlacer
    derived: DerivedChains
    diskless: diskless.Placer


def _with_chains(records: Sequence[Record], derived: DerivedChains) -> list[Record]:
    """`records`, and before them those that make the derived chains that they place topics on."""
    used = {run.chain for record in records
            if isinstance(record, TopicCreated | PartitionsAdded) for run in record.runs}
    return [*derived.records(used), *records]


def _plan(
    state: ClusterState, wanted: NewTopic, settings: BrokerSettings, placers: _Placers
) -> TopicCreated:
    overrides = _checked_configs(wanted.configs, settings)
    configs = [ConfigRecord(name=name, value=value) for name, value in overrides.items()]
    topic = topic_settings(overrides, settings)
    if topic.diskless_enable:
        if is_internal(wanted.name):
            raise RequestError(f"{wanted.name} is the cluster's own topic; it cannot be diskless",
                               code=Code.INVALID_TOPIC_EXCEPTION)
        partitions, runs = diskless.runs_of(
            diskless.new_topic(wanted, settings, placers.diskless))
        return TopicCreated(name=wanted.name, configs=configs, partitions=partitions, runs=runs)
    if wanted.assignments:
        orders = manual_orders(state, wanted, placers.derived)
    else:
        orders = automatic_orders(state, wanted, settings, topic,
                                  placer=placers.chain, derived=placers.derived)
    assert orders, wanted  # controller.S3
    return TopicCreated(
        name=wanted.name, configs=configs, runs=_runs(orders, placers.derived))


def delete_topics(
    state: ClusterState,
    wanted: Sequence[tuple[str | None, UUID]],
    settings: BrokerSettings,
    *,
    limits: RequestLimits | None = None,
    repeated: Collection[tuple[str | None, UUID]] = (),
) -> Decision[TopicResult]:
    """Delete topics by name, or by id where it is not zero; `repeated` ones are refused.

    `limits` is of the whole request, by the topics that existed when it arrived; some may have been
    created since.
    """
    now = RequestLimits(topic_names(state, wanted))
    found = [state.find_topic(name, topic_id) for name, topic_id in wanted]
    records: list[Record] = []
    results: list[TopicResult] = []
    for (name, topic_id), topic in zip(wanted, found, strict=True):
        try:
            if (name, topic_id) in repeated:
                raise RequestError("a topic may be named once in a request",
                                   code=Code.INVALID_REQUEST)
            result = _deletable(name, topic_id, topic, settings)
            for each in (now, limits or now):
                each.check(result.name or "")
        except QuipuError as error:
            results.append(TopicResult(name, topic_id, error.code, str(error)))
        else:
            assert result.topic_id in state.topics_by_id, result  # controller.S2
            records.append(TopicDeleted(topic_id=result.topic_id))
            results.append(result)
    assert len(results) == len(wanted), (len(results), len(wanted))
    return Decision(records, results)


def topic_names(state: ClusterState, wanted: Iterable[tuple[str | None, UUID]]) -> Iterator[str]:
    """The names of those topics, given by name or id, that exist."""
    for name, topic_id in wanted:
        topic = state.find_topic(name, topic_id)
        if topic is not None:
            yield topic.name


def create_partitions(
    state: ClusterState,
    wanted: Sequence[NewPartitions],
    settings: BrokerSettings,
    *,
    limits: RequestLimits | None = None,
) -> Decision[TopicResult]:
    """More partitions for existing topics; never fewer."""
    limits = limits or RequestLimits(topic.name for topic in wanted)
    room, numbers = PartitionBudget(state, settings.max_partitions), Numbers(state)
    version = numbers.version()
    placers = _Placers(ChainPlacer(state), DerivedChains(state, numbers), diskless.Placer(state))
    records: list[Record] = []
    results: list[TopicResult] = []
    for request in {topic.name: topic for topic in wanted}.values():
        try:
            limits.check(request.name)
            record = _plan_partitions(state, request, settings, placers)
            count = sum(run.count for run in record.runs)
            room.check(count)
            limits.take(count)
            room.take(count)
        except QuipuError as error:
            results.append(_refused(request.name, error))
        else:
            _stamp(record.runs, version)
            records.append(record)
            results.append(TopicResult(request.name, record.topic_id))
    assert len(results) == len({topic.name for topic in wanted}), results
    assert len(records) == sum(result.code is Code.NONE for result in results), results
    return Decision(_with_chains(records, placers.derived), results)


def _refused(name: str, error: QuipuError) -> TopicResult:
    return TopicResult(name, code=error.code, message=str(error),
                       limit=MAX_PARTITIONS if isinstance(error, TooManyPartitions) else "")


def _check_new_name(state: ClusterState, name: str, planned: Mapping[str, str]) -> None:
    check_topic_name(name)
    refuse(name, "created: it comes into being when it is needed")
    if name in state.topics:
        raise RequestError(f"topic {name} exists already", code=Code.TOPIC_ALREADY_EXISTS)
    clash = state.find_clash(name) or planned.get(clash_key(name))
    if clash is not None:
        raise RequestError(
            f"topic {name} would clash with {clash}: they differ only in '.' and '_', "
            "which are the same in names of metrics", code=Code.INVALID_TOPIC_EXCEPTION)


def _checked_configs(
    configs: Iterable[tuple[str, str | None]], settings: BrokerSettings
) -> dict[str, str]:
    overrides: dict[str, str] = {}
    for name, value in configs:
        if value is None:
            raise RequestError(f"setting {name} has no value; leave it out to inherit the broker's",
                               code=Code.INVALID_CONFIG)
        overrides[name] = value  # of one that is given twice, the last counts, as in Kafka
    check(TOPIC, overrides)
    if not TIERING.isdisjoint(overrides):
        check_tiering(topic_settings(overrides, settings),
                      is_available=settings.remote_log_storage_system_enable)
    if not DISKLESS.isdisjoint(overrides):
        check_diskless(topic_settings(overrides, settings), unavailable=why_unavailable(settings))
    return overrides


def _runs(orders: Iterable[Order], derived: DerivedChains) -> list[PartitionRun]:
    """Partitions on the chains of these lists of nodes, one after the other."""
    return [chain_run(ChainPlacement(name), sum(1 for _ in run))
            for name, run in groupby(derived.at(order).name for order in orders)]


def _stamp(runs: Iterable[PartitionRun], version: int) -> None:
    """Give partitions the version of this decision (controller.P1)."""
    assert version >= FIRST_VERSION, version
    for run in runs:
        run.version = version


def _deletable(
    name: str | None, topic_id: UUID, topic: Topic | None, settings: BrokerSettings
) -> TopicResult:
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
    return TopicResult(topic.name, topic.topic_id, topic=topic)


def _plan_partitions(
    state: ClusterState, wanted: NewPartitions, settings: BrokerSettings, placers: _Placers
) -> PartitionsAdded:
    topic = state.topics.get(wanted.name)
    if topic is None:
        raise RequestError(f"topic {wanted.name} does not exist",
                           code=Code.UNKNOWN_TOPIC_OR_PARTITION)
    refuse(topic.name, "given more partitions")
    check_fixed(topic, "given more partitions")
    have = len(topic.partitions)
    if wanted.total <= have:
        raise RequestError(f"topic {topic.name} has {have} partitions; {wanted.total} is not more",
                           code=Code.INVALID_PARTITIONS)
    check_count(wanted.total)
    if topic.is_diskless:
        partitions, runs = diskless.runs_of(
            diskless.added(topic, wanted, placers.diskless))
        record = PartitionsAdded(topic_id=topic.topic_id, partitions=partitions, runs=runs)
    else:
        orders = added_orders(state, topic, wanted, topic_settings(topic.configs, settings),
                              placer=placers.chain, derived=placers.derived)
        record = PartitionsAdded(topic_id=topic.topic_id, runs=_runs(orders, placers.derived))
    assert added_count(record) == wanted.total - have, record  # controller.S3
    return record

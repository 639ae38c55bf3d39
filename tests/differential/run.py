"""A run: random requests to both brokers, their responses compared, differences collected."""

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from quipu.model.errors import Code
from quipu.wire.messages import REQUESTS
from quipu.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from quipu.wire.messages.k03_metadata import MetadataRequest
from quipu.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from quipu.wire.messages.k15_describe_groups import DescribeGroupsRequest
from quipu.wire.messages.k18_api_versions import ApiVersionsRequest
from quipu.wire.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from quipu.wire.messages.k22_init_producer_id import InitProducerIdRequest
from quipu.wire.schema import Message
from tests.differential.both import KAFKA, QUIPU, Both
from tests.differential.comparing import FOREIGN_TOPICS, Comparison, Difference, error_codes
from tests.differential.connections import Exchange, NoResponse, Outcome
from tests.differential.explained import EXCLUDED, Explanation, explanation
from tests.differential.generators import WEIGHTS, generate
from tests.differential.scenes import SCENES, Scene
from tests.differential.steps import Step
from tests.differential.world import (
    ABSENT_GROUPS,
    FIXED_TOPICS,
    GROUPS,
    SIMPLE_GROUPS,
    STRANGE_GROUPS,
    Producer,
    TopicFacts,
    World,
)

CHUNK = 30  # requests on their way at a time
SCENE_SHARE = 0.12  # of the chunks
ALTERS = frozenset({33, 44})  # AlterConfigs, IncrementalAlterConfigs
APPLIED_SECONDS = 0.2  # Kafka's logs get new settings a moment after the response
SETTLE_SECONDS_MAX = 3.0
COORDINATOR_SECONDS_MAX = 60.0
PRODUCERS_MAX = 40
READ_AGAIN, READ_AGAIN_SECONDS = 3, 0.05
FETCH = 1
# ListOffsets, Metadata, OffsetFetch, OffsetForLeaderEpoch, and what describes or lists.
READS = frozenset({2, 3, 9, 15, 16, 23, 29, 32, 35, 46, 48, 50, 55, 60, 61, 65, 66, 74, 75, 77, 89})
REPORT_EVERY = 10_000  # requests
METADATA_VERSION = 12
VERSIONS_VERSION = 3
INIT_PRODUCER_ID = 22


_LOADING = frozenset({
    Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE, Code.COORDINATOR_LOAD_IN_PROGRESS})


class Kind(NamedTuple):
    """A kind of difference."""

    key: int
    difference: Difference


class Found(NamedTuple):
    """The first example of a kind of difference."""

    number: int  # of the request in the run
    step: Step
    kafka: Outcome
    quipu: Outcome


class Run:
    """Two brokers, the world that they share, and what was found so far."""

    def __init__(self, kafka: tuple[str, int], quipu: tuple[str, int], seed: int) -> None:
        self.seed = seed
        self.exchange = Exchange(kafka, quipu)
        self.world = World(seed)
        self.comparison = Comparison()
        self.requests = 0
        self.unexplained: dict[Kind, Found] = {}
        self.counts: Counter[Kind] = Counter()
        self.versions_of: dict[Kind, set[int]] = defaultdict(set)
        self.explained: Counter[Explanation] = Counter()
        self.coverage: Counter[tuple[int, int]] = Counter()
        self.codes: dict[int, tuple[Counter[str], Counter[str]]] = defaultdict(
            lambda: (Counter(), Counter()))
        self.served: dict[int, tuple[range, range]] = {}
        self.both: dict[int, list[int]] = {}
        self._apart: set[str] = set()  # topics that differ for good: nobody waits for them again
        self._scene_dice = random.Random(seed + 1)

    # -- the beginning

    def begin(self) -> None:
        """Learn what both serve, and make the fixed topics."""
        (pair,) = self._ask([Step(ApiVersionsRequest(
            client_software_name="differential", client_software_version="1"), VERSIONS_VERSION)])
        kafka, quipu = ({each.api_key: range(each.min_version, each.max_version + 1)
                         for each in side.api_keys} for side in pair)  # type: ignore[union-attr]
        for key in sorted({*kafka, *quipu}):
            self.served[key] = kafka.get(key, range(0)), quipu.get(key, range(0))
            if key in REQUESTS and key not in EXCLUDED:
                shared = [version for version in REQUESTS[key].VERSIONS
                          if version in kafka.get(key, ()) and version in quipu.get(key, ())]
                if shared:
                    self.both[key] = shared
        self._ask([Step(CreateTopicsRequest(topics=[
            CreatableTopic(name=name, num_partitions=count, replication_factor=1, configs=[
                CreatableTopicConfig(name=key, value=value) for key, value in settings.items()])
            for name, (count, settings) in FIXED_TOPICS.items()]), 5)])
        self._await_coordinators()
        self.settle()

    def _await_coordinators(self) -> None:
        """Wait until every group has its coordinator: it is loaded when it is first asked for."""
        names = [*GROUPS, *SIMPLE_GROUPS, *ABSENT_GROUPS, *STRANGE_GROUPS]
        until = time.monotonic() + COORDINATOR_SECONDS_MAX
        while True:
            pairs = self._ask([
                Step(FindCoordinatorRequest(coordinator_keys=names), 4),
                Step(DescribeGroupsRequest(groups=names), 5),
                Step(InitProducerIdRequest(transactional_id=None), 4)])
            found: list[Any] = [side for pair in pairs for side in pair]
            codes = {each.error_code for side in found for each in (
                *getattr(side, "coordinators", ()), *getattr(side, "groups", ()), side)
                if hasattr(each, "error_code")}
            if not codes & _LOADING:
                return
            assert time.monotonic() < until, pairs
            time.sleep(0.05)

    # -- steps

    def go(self, requests: int, progress: Callable[[int], None] | None = None) -> None:
        """Send that many requests, at least; each API and version in turn, then at random."""
        reported = 0
        todo = [(key, version) for key, versions in self.both.items() for version in versions]
        self.world.dice.shuffle(todo)
        keys = list(self.both)
        weights = [WEIGHTS.get(key, 1) for key in keys]
        while self.requests < requests or todo:
            if progress is not None and self.requests - reported >= REPORT_EVERY:
                reported = self.requests
                progress(reported)
            if self._scene_dice.random() < SCENE_SHARE:
                self._play(self._scene_dice.choice(SCENES))
                continue
            steps = []
            for _ in range(CHUNK):
                if todo and self.world.chance(0.5):
                    key, version = todo.pop()
                else:
                    (key,) = self.world.dice.choices(keys, weights)
                    version = self.world.pick_of(self.both[key])
                steps.append(generate(self.world, key, version))
                if steps[-1].alone or steps[-1].settles:
                    break
            alone = [steps.pop()] if steps[-1].alone else []
            for part in (steps, alone):
                if part:
                    self.take(part)

    def take(self, steps: list[Step]) -> list[tuple[Outcome, Outcome]]:
        """Carry out steps of one connection, and compare their outcomes."""
        pairs = self._ask(steps)
        for step, pair in zip(steps, pairs, strict=True):
            self._judge(step, *(self._read_again(step, pair) if _is_read(step) else pair))
        if any(step.settles for step in steps):
            if any(step.request.KEY in ALTERS for step in steps):
                time.sleep(APPLIED_SECONDS)
            self.settle()
        return pairs

    def _read_again(self, step: Step, pair: tuple[Outcome, Outcome]) -> tuple[Outcome, Outcome]:
        """The outcomes of a read; if they differ, of the same read a moment later.

        A broker may need a moment to show what it has accepted; a difference that stays is one.
        """
        for _ in range(READ_AGAIN):
            found = self.comparison.differences(step.version, *pair, limited=step.limited)
            if all(explanation(step.request.KEY, step.version, each) for each in found):
                break
            time.sleep(READ_AGAIN_SECONDS)
            (pair,) = self._ask([step])
        return pair

    def _ask(self, steps: list[Step]) -> list[tuple[Outcome, Outcome]]:
        kafka, quipu = ([step.sent(side) for step in steps] for side in (KAFKA, QUIPU))
        return self.exchange.ask(steps[0].connection, kafka, quipu)

    def _play(self, scene: Scene) -> None:
        """Play a scene: it yields steps, and is sent their outcomes."""
        playing = scene(self)
        try:
            step = next(playing)
            while True:
                (pair,) = self.take([step])
                step = playing.send(pair)
        except StopIteration:
            return

    def ask_quietly(self, step: Step) -> list[str]:
        """The states of the one group that a DescribeGroups asks for; nothing is compared."""
        (pair,) = self._ask([step])
        return [side.groups[0].group_state for side in pair]  # type: ignore[union-attr]

    def begin_step(self, step: Step) -> Callable[[], tuple[Outcome, Outcome]]:
        """Send a request whose response comes later; what is returned waits for it."""
        kafka, quipu = ([step.sent(side)] for side in (KAFKA, QUIPU))
        self.exchange.begin(step.connection, kafka, quipu)

        def end() -> tuple[Outcome, Outcome]:
            (pair,) = self.exchange.end(step.connection, kafka, quipu)
            self._judge(step, *pair)
            return pair

        return end

    # -- outcomes

    def _judge(self, step: Step, kafka: Outcome, quipu: Outcome) -> None:
        key = step.request.KEY
        self.requests += 1
        self.coverage[key, step.version] += 1
        for side, outcome in enumerate((kafka, quipu)):
            if isinstance(outcome, Message):
                self.codes[key][side].update(set(error_codes(outcome)))
            else:
                self.codes[key][side][outcome.why] += 1
        if key == INIT_PRODUCER_ID:
            self._learn_producer(kafka, quipu)
        for difference in self.comparison.differences(
                step.version, kafka, quipu, limited=step.limited):
            self._note(step, difference, kafka, quipu)

    def _note(self, step: Step, difference: Difference, kafka: Outcome, quipu: Outcome) -> None:
        key = step.request.KEY
        reason = explanation(key, step.version, difference)
        if reason is not None:
            self.explained[reason] += 1
            return
        kind = Kind(key, difference)
        self.counts[kind] += 1
        self.versions_of[kind].add(step.version)
        self.unexplained.setdefault(kind, Found(self.requests, step, kafka, quipu))

    def _learn_producer(self, kafka: Any, quipu: Any) -> None:
        if isinstance(kafka, NoResponse) or isinstance(quipu, NoResponse):
            return
        if kafka.error_code == 0 == quipu.error_code and kafka.producer_epoch == 0:
            self.world.producers.append(Producer(Both(kafka.producer_id, quipu.producer_id)))
            del self.world.producers[:-PRODUCERS_MAX]

    # -- changes of metadata, which brokers learn after the response

    def settle(self) -> None:
        """Wait until both show the same topics; what differs then is compared as usual."""
        step = Step(MetadataRequest(topics=None, allow_auto_topic_creation=False),
                    METADATA_VERSION)
        until = time.monotonic() + SETTLE_SECONDS_MAX
        while True:
            ((kafka, quipu),) = self._ask([step])
            apart = _apart(_shape(kafka), _shape(quipu))
            if not apart:
                apart = self._not_led(kafka)
            if apart <= self._apart or time.monotonic() > until:
                break
            time.sleep(0.005)
        self._apart = apart
        self._learn_topics(kafka, quipu)
        self._judge(step, kafka, quipu)

    def _not_led(self, shown: Any) -> set[str]:
        """Topics with partitions that Kafka shows, and does not lead yet."""
        ((kafka, _),) = self._ask([Step(ListOffsetsRequest(replica_id=-1, topics=[
            ListOffsetsTopic(name=topic.name, partitions=[
                ListOffsetsPartition(partition_index=each.partition_index, timestamp=-2)
                for each in topic.partitions]) for topic in shown.topics]), 5)])
        assert not isinstance(kafka, NoResponse), kafka
        return {topic.name for topic in kafka.topics  # type: ignore[attr-defined]
                for each in topic.partitions if each.error_code == Code.NOT_LEADER_OR_FOLLOWER}

    def _learn_topics(self, kafka: Any, quipu: Any) -> None:
        world = self.world
        theirs = {topic.name: topic for topic in kafka.topics}
        ours = {topic.name: topic for topic in quipu.topics}
        before = world.topics
        world.topics = {
            name: TopicFacts(Both(theirs[name].topic_id, ours[name].topic_id),
                             len(ours[name].partitions))
            for name in theirs if name in ours}
        known = {facts.topic_id for facts in world.topics.values()}
        for name, facts in before.items():
            if facts.topic_id not in known:
                world.deleted_ids.append(facts.topic_id)
                for producer in world.producers:
                    for at in [at for at in producer.next if at[0] == name]:
                        del producer.next[at]
        if "plain" in theirs and "plain" in ours:
            first = Both(theirs["plain"].partitions[0].leader_epoch,
                         ours["plain"].partitions[0].leader_epoch)
            world.first_epochs = self.comparison.first_epochs = first


def _is_read(step: Step) -> bool:
    """Whether a request changes nothing, so that it may be sent again."""
    if step.request.KEY == FETCH:
        return getattr(step.request, "session_epoch", -1) == -1
    return step.request.KEY in READS and not step.settles


def _shape(response: Any) -> dict[str, list[tuple[int, int]]]:
    """Topics and their partitions with leaders, as far as both must agree on them."""
    assert not isinstance(response, NoResponse), response
    return {topic.name: sorted((each.partition_index, each.error_code)
                               for each in topic.partitions)
            for topic in response.topics if topic.name not in FOREIGN_TOPICS}


def _apart(kafka: dict[str, Any], quipu: dict[str, Any]) -> set[str]:
    return {name for name in {*kafka, *quipu} if kafka.get(name) != quipu.get(name)}


def missing_coverage(run: Run) -> Iterator[tuple[int, int]]:
    """APIs and versions that both serve and that no request had."""
    for key, versions in run.both.items():
        for version in versions:
            if not run.coverage[key, version]:
                yield key, version

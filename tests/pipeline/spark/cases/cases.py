"""Cases: messages in topics, a statement, and the rows or the error that must come of it.

    STORY = Story(
        Topic("animals"),                                    # one partition, text
        Stage(
            {"animals": [("a", "cat"), ("a", None), (None, "dog")]},
            Case("12", "the key is a column", "FROM KAFKA CONNECTION k (TOPIC 'animals') …",
                 columns="key text, text text not null", rows=[("a", "cat"), …])),
        Stage({"animals": [("b", "cow")]}, Case("13", "…", of="12", rows=[…])))

A story is told once, with a real node and a real Spark (`told`), and each case is a test of its
own (`check`).  A stage sends its messages, and then goes through its cases: CREATE SOURCE case_12
…, SHOW COLUMNS, SELECT, and the source's dead letters, as far as the case has something to say
about them.  The connections are k, to Kafka, and r, to a schema registry that knows the formats
of the topics.

The numbers of cases are names: they stay, and there are gaps.  `ours` says in what we differ from
Materialize, which has most of these cases, and on purpose.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyspark.errors import PythonException

from quipu.pipeline.envelopes.contract import OutstandingErrors
from quipu.pipeline.formats.specs import Registry
from quipu.pipeline.registry.client import RegistryClient
from quipu.pipeline.sql.errors import SqlError
from tests.pipeline.spark.broker import Record
from tests.pipeline.spark.cases.codecs import TEXT, Codec, Protobuf
from tests.pipeline.spark.workbench import Workbench

Row = tuple[Any, ...]
Schemas = dict[str, int | None]  # by subject

REGISTRY = "USING CONFLUENT SCHEMA REGISTRY CONNECTION r"
BOTH_TEXT = "KEY FORMAT TEXT VALUE FORMAT TEXT"


def from_topic(topic: str, options: str = "") -> str:
    """The place of a source."""
    return f"FROM KAFKA CONNECTION k (TOPIC '{topic}'{options})"


def protobuf(codec: Protobuf) -> str:
    """A format whose schema is in the statement."""
    return f"PROTOBUF MESSAGE '{codec.message}' USING SCHEMA '{codec.descriptors}'"


class Message(NamedTuple):
    """One message before it is encoded; a pair will do if it has nothing else."""

    key: Any
    value: Any
    partition: int = 0
    timestamp: int = 0  # 0: now
    headers: Sequence[tuple[str, bytes | None]] = ()


@dataclass(frozen=True)
class Topic:
    """A topic, and how its messages are written."""

    name: str
    key: Codec = TEXT
    value: Codec = TEXT
    partitions: int = 1


@dataclass(frozen=True)
class Case:
    """A statement and what must come of it; what is None is not compared."""

    number: str
    title: str
    create: str = ""  # what follows CREATE SOURCE case_…
    of: str = ""  # the case whose source this one reads, if it creates none
    query: str = "SELECT * FROM {}"
    columns: str | None = None  # as SHOW COLUMNS tells them
    rows: Sequence[Row] | None = None  # in any order
    refused: str | None = None  # part of what CREATE says
    unreadable: Sequence[str] | None = None  # parts of what SELECT says
    letters: Sequence[tuple[int, int, str]] | None = None  # partition, offset, part of the error
    materialized: bool = False
    ours: str = ""

    @property
    def source(self) -> str:
        return f"case_{(self.of or self.number).lower()}"


class Stage:
    """What happens, and then what is seen."""

    def __init__(self, messages: Mapping[str, Sequence[Message | Row]], *cases: Case,
                 grow: Mapping[str, int] | None = None) -> None:
        self.messages = messages
        self.cases = cases
        self.grow = grow or {}


class Story:
    """Topics, and stages in order."""

    def __init__(self, *parts: Topic | Stage) -> None:
        self.topics = {part.name: part for part in parts if isinstance(part, Topic)}
        self.stages = [part for part in parts if isinstance(part, Stage)]
        self.cases = [case for stage in self.stages for case in stage.cases]
        assert len({case.number for case in self.cases}) == len(self.cases)


@dataclass
class Outcome:
    """What came of a case."""

    refused: str | None = None
    columns: str | None = None
    rows: list[Row] | None = None
    unreadable: str | None = None
    letters: list[tuple[int, int, str]] | None = None


def connections(broker: str, registry: str) -> list[str]:
    """The statements that make k and r."""
    return [f"CREATE CONNECTION k TO KAFKA (BROKER '{broker}')",
            f"CREATE CONNECTION r TO CONFLUENT SCHEMA REGISTRY (URL '{registry}')"]


def registered(topic: Topic, registry: str) -> Schemas:
    """The numbers of a topic's schemas, which the registry knows from now on."""
    client = RegistryClient(Registry(registry))
    return {subject: codec.register(client, subject) for subject, codec in (
        (f"{topic.name}-key", topic.key), (f"{topic.name}-value", topic.value))}


def encoded(topic: Topic, messages: Sequence[Message | Row], schemas: Schemas) -> list[Record]:
    """Messages as they are sent."""
    def part(codec: Codec, name: str, value: Any) -> bytes | None:
        return None if value is None else codec.encode(value, schemas[f"{topic.name}-{name}"])

    return [Record(part(topic.key, "key", key), part(topic.value, "value", value), *rest)
            for key, value, *rest in itertools.starmap(Message, messages)]


@dataclass
class Teller:
    """The outside of stories."""

    work: Workbench
    registry: str  # its address
    schemas: Schemas = field(default_factory=dict)

    def connect(self) -> None:
        """Make the connections k and r."""
        for statement in connections(self.work.broker.bootstrap, self.registry):
            self.work.do(statement)

    def told(self, story: Story) -> dict[str, Outcome]:
        """What came of each case."""
        for topic in story.topics.values():
            self.work.broker.topic(name=topic.name, partitions=topic.partitions)
            self.register(topic)
        found: dict[str, Outcome] = {}
        for stage in story.stages:
            for name, partitions in stage.grow.items():
                self.work.broker.grow(name, partitions)
            for name, messages in stage.messages.items():
                self.send(story.topics[name], messages)
            found |= {case.number: self._outcome(case) for case in stage.cases}
        for case in story.cases:
            if case.create and found[case.number].refused is None:
                self.work.do(f"DROP SOURCE {case.source}")
        return found

    def register(self, topic: Topic) -> None:
        """Tell the registry how messages of a topic are written."""
        self.schemas |= registered(topic, self.registry)

    def send(self, topic: Topic, messages: Sequence[Message | Row]) -> None:
        """Produce messages, and wait until they are stored."""
        self.work.broker.records(topic.name, encoded(topic, messages, self.schemas))

    def _outcome(self, case: Case) -> Outcome:
        outcome = Outcome()
        if case.create:
            kind = "MATERIALIZED SOURCE" if case.materialized else "SOURCE"
            try:
                self.work.do(f"CREATE {kind} {case.source} {case.create}")
            except SqlError as error:
                outcome.refused = str(error)
                return outcome
        if case.columns is not None:
            outcome.columns = ", ".join(
                f"{name} {kind}{'' if nullable else ' not null'}"
                for name, kind, nullable in self.work.do(f"SHOW COLUMNS FROM {case.source}").rows)
        if case.rows is not None or case.unreadable is not None:
            try:
                outcome.rows = self.rows(case.query.format(case.source))
            except (OutstandingErrors, PythonException) as error:
                outcome.unreadable = str(error)
        if case.letters is not None:
            letters = self.rows(
                f"SELECT partition, offset, error FROM {case.source}_dead_letters")
            outcome.letters = [(partition, offset, error) for partition, offset, error in letters]
        return outcome

    def rows(self, query: str) -> list[Row]:
        """What a query gives, in some order."""
        table = self.work.frame(query).toArrow()
        return in_order(zip(*(column.to_pylist() for column in table.columns), strict=True))


def in_order(rows: Any) -> list[Row]:
    """Rows, of which some have no order of their own."""
    return sorted(map(tuple, rows), key=repr)


def check(case: Case, outcomes: Mapping[str, Outcome]) -> None:
    """A case is as it must be."""
    found = outcomes[case.number]
    if case.refused is not None:
        assert found.refused is not None, "nothing is wrong with the statement"
        assert case.refused in found.refused, found.refused
        return
    assert found.refused is None, found.refused
    assert found.columns == case.columns, found.columns
    if case.rows is not None:
        assert found.unreadable is None, found.unreadable
        assert found.rows == in_order(case.rows), found.rows
    for part in case.unreadable or ():
        assert found.unreadable is not None, "it can be read"
        assert part in found.unreadable, found.unreadable
    if case.letters is not None:
        assert found.letters is not None
        letters, wanted = sorted(found.letters), sorted(case.letters)
        assert [each[:2] for each in letters] == [each[:2] for each in wanted], letters
        for (*_, error), (*_, part) in zip(letters, wanted, strict=True):
            assert part in error, letters

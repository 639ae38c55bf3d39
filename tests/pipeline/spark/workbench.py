"""A pipeline with a broker beside it: statements and messages in few words.

    name = work.source("FORMAT TEXT INCLUDE OFFSET", "a:1", "b:2")     # topic, messages, source
    work.send(name, "c:3")
    work.rows(f"SELECT * FROM {name}")                                  # sorted tuples
    work.do(f"CREATE MATERIALIZED VIEW v AS SELECT * FROM {name}")      # a CommandResult
"""

import itertools

from pyspark.sql import DataFrame

from quipu.pipeline.command_result import CommandResult
from quipu.pipeline.spark.statements.pipeline import Pipeline
from tests.harness.progress import wait_for
from tests.pipeline.spark.broker import Broker

_numbers = itertools.count(1)


def catch_up(pipeline: Pipeline) -> None:
    """Wait until views and sinks have what topics hold, for as long as they make progress."""
    wait_for(lambda: pipeline.catch_up(2.0), progress=lambda: [
        (each.version, each.messages) for each in pipeline.progress()])


class Workbench:
    """A pipeline and a broker; names are fresh, so that many tests can share one."""

    def __init__(self, pipeline: Pipeline, broker: Broker) -> None:
        self.pipeline = pipeline
        self.broker = broker
        self.topics: dict[str, str] = {}

    @staticmethod
    def name(prefix: str = "x") -> str:
        """A name that nobody has."""
        return f"{prefix}{next(_numbers)}"

    def source(self, rest: str, *messages: str | bytes, partitions: int = 1) -> str:
        """Create a topic with messages, and a source that reads it; the source's name."""
        topic = self.broker.topic(partitions=partitions)
        self.broker.send(topic, *messages)
        return self.source_of(topic, rest)

    def source_of(self, topic: str, rest: str, columns: str = "") -> str:
        """Create a source of a topic, with columns if they have to be told; its name."""
        name = self.name("s")
        self.topics[name] = topic
        self.do(f"CREATE SOURCE {name} {columns} FROM KAFKA BROKER '{self.broker.bootstrap}' "
                f"TOPIC '{topic}' {rest}")
        return name

    def view(self, query: str) -> str:
        """Create a materialized view; its name."""
        name = self.name("v")
        self.do(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        return name

    def send(self, source: str, *messages: str | bytes, partition: int = 0) -> None:
        """More messages for a source."""
        self.broker.send(self.topics[source], *messages, partition=partition)

    def drop_all(self, but: set[str]) -> None:
        """Drop everything that there is, but for some."""
        new = [entry for entry in self.pipeline.catalog.entries() if entry.name not in but]
        for entry in reversed(new):
            self.do(f'DROP {entry.kind.value} IF EXISTS "{entry.name}" CASCADE')

    def do(self, statement: str) -> CommandResult:
        """Carry out a statement that is no query."""
        found = self.pipeline.execute(statement)
        assert isinstance(found, CommandResult)
        return found

    def frame(self, query: str) -> DataFrame:
        """A query's DataFrame."""
        found = self.pipeline.execute(query)
        assert isinstance(found, DataFrame)
        return found

    def rows(self, query: str) -> list[tuple[object, ...]]:
        """A query's rows, in order."""
        return sorted(map(tuple, self.frame(query).collect()), key=repr)

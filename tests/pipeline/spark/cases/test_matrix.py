"""Items by envelopes by formats: every cell works and is exact, or is refused for a reason."""

import itertools
from collections.abc import Iterable, Mapping

import pytest

from quipu.pipeline.registry.server import RegistryServer
from quipu.pipeline.source import PlannedSource
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.types import sql_name
from tests.pipeline.execution.direct import Planner, read
from tests.pipeline.spark.broker import Broker
from tests.pipeline.spark.cases.cases import (
    Message,
    Teller,
    Topic,
    connections,
    encoded,
    in_order,
    registered,
)
from tests.pipeline.spark.cases.matrix import (
    CELLS,
    CHANGED_MS,
    CHANGES,
    ENVELOPES,
    INCLUDES,
    PLAIN,
    TABLE,
    UPDATES,
    Cell,
)
from tests.pipeline.spark.cases.matrix_formats import FORMATS, WRAPPED, Format
from tests.pipeline.spark.workbench import Workbench

BY_PART: Mapping[tuple[str, str], list[Cell]] = {
    part: list(cells) for part, cells in itertools.groupby(
        CELLS, lambda cell: (cell.format.name, str(cell.envelope)))}


def plain_messages(written: Format) -> list[Message]:
    return [Message(
        None if sent.key is None else written.key(sent.key),
        None if sent.value is None else written.value(sent.key or 0, sent.value),
        sent.partition, sent.timestamp, sent.headers) for sent in PLAIN]


def event_messages(written: Format) -> list[Message]:
    return [Message(
        written.key(sent.key), sent.value and written.value(sent, TABLE, CHANGED_MS),
        sent.partition, sent.timestamp, sent.headers) for sent in CHANGES]


def change_messages(written: Format) -> list[Message]:
    return [Message(None, written.value(sent.value), sent.partition, sent.timestamp, sent.headers)
            for sent in UPDATES]


@pytest.fixture(scope="module")
def planner(broker: Broker, registry: RegistryServer) -> Planner:
    """All topics are there, with their messages."""
    kinds = [(each, plain_messages) for each in FORMATS.values()]
    kinds += [(each, event_messages if is_debezium else change_messages)
              for (_, is_debezium), each in WRAPPED.items()]
    by_topic = {written.topic: (written, make) for written, make in kinds}
    for written, make in by_topic.values():
        topic = Topic(written.topic, written.key_codec, written.value_codec, partitions=2)
        broker.topic(name=topic.name, partitions=topic.partitions)
        broker.records(topic.name, encoded(topic, make(written), registered(topic, registry.url)))
    return Planner(connections(broker.bootstrap, registry.url))


def columns_of(source: PlannedSource) -> list[str]:
    return [f"{column.name} {sql_name(column.type)}{'' if column.nullable else ' not null'}"
            for column in source.columns]


@pytest.mark.parametrize("part", BY_PART, ids="-".join)
def test_every_cell(part: tuple[str, str], planner: Planner) -> None:
    """I1, I2, I3, I4, I6, I7, I8, I10, I15, I16: columns, rows, dead letters of all there is."""
    for cell in BY_PART[part]:
        text = cell.statement("s")
        if cell.refusal is not None:
            with pytest.raises(SqlError) as refused:
                planner.source(text)
            assert cell.refusal in refused.value.message, text
            continue
        source = planner.source(text)
        assert columns_of(source) == cell.columns, text
        found = read(source)
        assert in_order(found.rows) == in_order(cell.rows), text
        assert sorted(found.letters) == sorted(cell.letters), text


def test_the_matrix_is_whole() -> None:
    """Some of everything works, and some of everything is refused."""
    working = [cell for cell in CELLS if cell.refusal is None]
    assert len(CELLS) == len(FORMATS) * len(ENVELOPES) * len(INCLUDES)
    for values in ("format", "envelope", "include"):
        assert {getattr(cell, values) for cell in working} == {
            getattr(cell, values) for cell in CELLS}
    assert all(cell.rows for cell in working)


def largest(cells: Iterable[Cell]) -> list[Cell]:
    """Those that include most."""
    working = [cell for cell in cells if cell.refusal is None]
    most = max(len(cell.include) for cell in working)
    return [cell for cell in working if len(cell.include) == most]


def sample() -> list[Cell]:
    """A cell of each format, and one of each envelope in one format or another."""
    formats = [largest(BY_PART[name, "none-key"])[0] for name in FORMATS]
    envelopes = [largest(cell for cell in CELLS if cell.envelope == envelope)
                 for envelope in ENVELOPES]
    return [*formats, *(cells[number % len(cells)] for number, cells in enumerate(envelopes))]


def test_spark_tells_the_same(planner: Planner, teller: Teller, work: Workbench) -> None:
    """I2, I7, I8, I12, I15: cells through the whole pipeline, as users meet them."""
    made = {work.name("cell"): cell for cell in sample()}
    for name, cell in made.items():
        work.do(cell.statement(name))
        columns = work.do(f"SHOW COLUMNS FROM {name}").rows
        assert [f"{column} {kind}{'' if nullable else ' not null'}"
                for column, kind, nullable in columns] == cell.columns
        rows = teller.rows(f"SELECT * FROM {name}")
        assert rows == in_order(cell.rows), cell
        assert rows == in_order(read(planner.source(cell.statement(name))).rows)

    letters = teller.rows(" UNION ALL ".join(
        f"SELECT '{name}', partition, offset FROM {name}_dead_letters" for name in made))
    assert letters == in_order(
        (name, *place) for name, cell in made.items() for place in cell.letters)

"""CREATE SINK: views followed into files, tables, topics and memory."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import quipu.pipeline
from quipu.pipeline.spark.sinks import sink as sinks
from quipu.pipeline.sql.errors import SqlError
from tests.harness.progress import wait_for
from tests.pipeline.spark.broker import Broker
from tests.pipeline.spark.workbench import Workbench, catch_up

KEYED = "KEY FORMAT TEXT VALUE FORMAT TEXT INCLUDE KEY"


def parquet_rows(folder: Path) -> Counter[tuple[object, ...]]:
    """The rows of a changelog in files, added up."""
    counts: Counter[tuple[object, ...]] = Counter()
    for path in folder.glob("*.parquet"):
        for row in pq.read_table(path).to_pylist():
            row.pop("_version", None)
            counts[tuple(row.values())[:2]] += row.get("_diff", 1)
    return +counts


def net(table: pa.Table) -> Counter[tuple[object, ...]]:
    counts: Counter[tuple[object, ...]] = Counter()
    for row in table.to_pylist():
        diff = row.pop("#diff")
        counts[tuple(row.values())] += diff
    return +counts


def test_a_view_into_files_and_memory(work: Workbench, tmp_path: Path) -> None:
    """I11, I13: what was there before the sink, and what comes after, each once; pipeline.S2."""
    name = work.source(f"{KEYED} ENVELOPE UPSERT", "a:1", "b:2")
    view = work.view(f"SELECT key, text FROM {name}")
    files, memory = work.name("k"), work.name("k")
    work.do(f"CREATE SINK {files} FROM {view} INTO PARQUET '{tmp_path}'")
    work.do(f"CREATE SINK {memory} FROM {view} INTO MEMORY")
    first = Counter({("a", "1"): 1, ("b", "2"): 1})
    wait_for(lambda: parquet_rows(tmp_path) == first)
    work.send(name, "a:9", "b:", "c:3")

    second = Counter({("a", "9"): 1, ("c", "3"): 1})
    wait_for(lambda: parquet_rows(tmp_path) == second)
    wait_for(lambda: net(work.pipeline.memory(memory)) == second)
    shown = {row[0]: row[1:] for row in work.do("SHOW SINKS").rows}
    assert shown[files][:2] == (view, "parquet")
    assert shown[files][4] is None


def test_a_source_into_delta_goes_on_after_a_restart(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """I11: the sink of a source keeps it for itself, and neither repeats nor leaves out rows."""
    topic = broker.topic()
    broker.send(topic, "a:1", "b:2")
    uri = str(tmp_path / "table")

    def read() -> list[tuple[object, ...]]:
        if not DeltaTable.is_deltatable(uri):
            return []
        return sorted(tuple(row.values())
                      for row in DeltaTable(uri).to_pyarrow_table().to_pylist())

    with quipu.pipeline.connect(spark, state=tmp_path / "state") as pipeline:
        work = Workbench(pipeline, broker)
        name = work.source_of(topic, f"{KEYED}, OFFSET")
        work.do(f"CREATE SINK d FROM {name} INTO DELTA '{uri}'")
        wait_for(lambda: len(read()) == 2)
    broker.send(topic, "c:3")

    with quipu.pipeline.connect(spark, state=tmp_path / "state"):
        wait_for(lambda: len(read()) >= 3)
    assert read() == [("a", "1", 0), ("b", "2", 1), ("c", "3", 2)]


def test_a_table_that_is_replaced_has_the_newest_version(
    work: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I11: a view that takes rows back, in Delta; versions between two looks are passed over."""
    monkeypatch.setattr(sinks, "REWRITE_SECONDS", 1.0)
    name = work.source(f"{KEYED} ENVELOPE UPSERT", "a:1", "b:2")
    view, sink, uri = work.view(f"SELECT key, text FROM {name}"), work.name("d"), tmp_path / "t"
    work.do(f"CREATE SINK {sink} FROM {view} INTO DELTA '{uri}'")
    catch_up(work.pipeline)
    for number in range(5):
        work.send(name, f"a:{number}")
        work.pipeline.wait(view)
    work.send(name, "b:", "c:3")
    catch_up(work.pipeline)

    table = DeltaTable(str(uri))
    assert sorted(map(tuple, (row.values() for row in table.to_pyarrow_table().to_pylist()))) == [
        ("a", "4"), ("c", "3")]
    assert table.version() < 6


def test_a_view_made_again_with_a_new_column_goes_into_the_same_places(
    work: Workbench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """I11, I13: rows from before have NULL in the new column; the console tells what came."""
    name = work.source("FORMAT TEXT INCLUDE OFFSET", ":a", ":b")
    view, files, table, console = (work.name(prefix) for prefix in "vpdc")
    folder, uri = str(tmp_path / "files"), str(tmp_path / "table")
    for columns in ("text", "text, offset"):
        work.do(f"CREATE MATERIALIZED VIEW {view} AS SELECT {columns} FROM {name}")
        work.do(f"CREATE SINK {files} FROM {view} INTO PARQUET '{folder}'")
        work.do(f"CREATE SINK {table} FROM {view} INTO DELTA '{uri}'")
        work.do(f"CREATE SINK {console} FROM {view} INTO CONSOLE")
        catch_up(work.pipeline)
        work.do(f"DROP VIEW {view} CASCADE")

    told = [line.split("  ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    assert sorted(told) == ["+1  text='a'", "+1  text='a'  offset=0",
                            "+1  text='b'", "+1  text='b'  offset=1"]
    rows = [("a", 0), ("a", None), ("b", 1), ("b", None)]
    found = work.pipeline.spark.read.option("mergeSchema", "true").parquet(folder)
    assert sorted(map(tuple, found.select("text", "offset").collect()), key=repr) == rows
    written = DeltaTable(uri).to_pyarrow_table().to_pylist()
    assert sorted((tuple(row.values()) for row in written), key=repr) == rows


def test_a_view_into_a_topic_is_a_source_again(work: Workbench) -> None:
    """I13, I18: what a sink writes, an upsert source reads."""
    name = work.source(f"{KEYED} ENVELOPE UPSERT", "a:1", "b:2", "c:1")
    view = work.view(f"SELECT text, count(*) AS n FROM {name} GROUP BY text")
    topic, sink = work.broker.topic(), work.name("k")
    work.do(f"CREATE SINK {sink} FROM {view} INTO KAFKA BROKER '{work.broker.bootstrap}' "
            f"TOPIC '{topic}' KEY (text) FORMAT JSON")
    again = work.source_of(topic, "KEY FORMAT TEXT VALUE FORMAT JSON ENVELOPE UPSERT",
                           "(text text, n bigint)")
    query = f"SELECT text, n FROM {again}"
    wait_for(lambda: work.rows(query) == [("1", 2), ("2", 1)], pause=0.5)
    work.send(name, "b:1")

    wait_for(lambda: work.rows(query) == [("1", 3)], pause=0.5)


def test_sinks_that_cannot_be_are_refused(work: Workbench) -> None:
    """I19: the mistake is found when the sink is made."""
    name = work.source(f"{KEYED} ENVELOPE UPSERT", "a:1")
    into = f"INTO KAFKA BROKER '{work.broker.bootstrap}' TOPIC 'x'"

    with pytest.raises(SqlError, match="needs a KEY"):
        work.do(f"CREATE SINK refused FROM {name} {into} FORMAT JSON")
    with pytest.raises(SqlError, match='no column "nothing"'):
        work.do(f"CREATE SINK refused FROM {name} {into} KEY (nothing) FORMAT JSON")
    with pytest.raises(SqlError, match="There is no source or view"):
        work.do("CREATE SINK refused FROM nowhere INTO MEMORY")

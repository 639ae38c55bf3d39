"""Queries reach sources and views, and nothing outside of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from quipu.pipeline.settings import parsed
from quipu.pipeline.spark.statements.pipeline import Pipeline, connect
from quipu.pipeline.sql.errors import SqlError
from tests.pipeline.spark.broker import Broker

SETTING = "quipu.sql.outside.enabled"
PROPERTY = "quipu.test.reached"
CALL = f"java_method('java.lang.System', 'setProperty', '{PROPERTY}', 'yes')"


@pytest.fixture(scope="module")
def pipeline(
    spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pipeline]:
    topic = broker.topic()
    broker.send(topic, ":a", ":b")
    with connect(spark, state=tmp_path_factory.mktemp("admission") / "state") as pipeline:
        pipeline.execute(f"CREATE SOURCE s FROM KAFKA BROKER '{broker.bootstrap}' "
                         f"TOPIC '{topic}' FORMAT TEXT")
        yield pipeline


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    (tmp_path / "secret.csv").write_text("hunter2\n")
    return tmp_path / "secret.csv"


CALLS = [
    f"SELECT {CALL}", f"SELECT {CALL.upper().replace('JAVA.LANG', 'java.lang')}",
    f"select /* c */ JaVa_MeThOd /* d */ ('java.lang.System', 'setProperty', '{PROPERTY}', 'x')",
    f"SELECT {CALL.replace('java_method', '`java_method`')}",
    f"SELECT {CALL.replace('java_method', 'reflect')}",
    f"SELECT {CALL.replace('java_method', 'try_reflect')}",
    f"SELECT {CALL.replace('java_method', 'IDENTIFIER(' + chr(39) + 'reflect' + chr(39) + ')')}",
    f"SELECT * FROM s WHERE text = {CALL}", f"SELECT (SELECT max({CALL}) FROM s)",
    f"SELECT * FROM s WHERE EXISTS (SELECT 1 FROM s WHERE {CALL} = text)",
    f"WITH x AS (SELECT {CALL} AS y) SELECT y AS z FROM x", f"VALUES ({CALL})",
    f"SELECT * FROM s ORDER BY {CALL}", f"SELECT count(*) FROM s GROUP BY {CALL}",
    f"SELECT transform(array(text), x -> {CALL}) FROM s",
    f"SELECT count(*) FROM s a JOIN s b ON a.text = {CALL}",
    f"SELECT upper({CALL}) AS java FROM s UNION ALL SELECT text FROM s",
    f"SELECT * FROM s LATERAL VIEW explode(array({CALL})) t AS e",
    f"SELECT sum(1) OVER (PARTITION BY {CALL}) FROM s",
]


@pytest.mark.parametrize("query", CALLS)
def test_no_code_is_called(pipeline: Pipeline, spark: SparkSession, query: str) -> None:
    """K8: whatever it looks like, wherever it stands; the error names the setting."""
    jvm: Any = spark._jvm
    with pytest.raises(SqlError) as raised:
        pipeline.execute(query)
    assert SETTING in str(raised.value)
    for create in ("CREATE VIEW bad AS", "CREATE MATERIALIZED VIEW bad AS"):
        with pytest.raises(SqlError):
            pipeline.execute(f"{create} {query}")
    assert jvm.java.lang.System.getProperty(PROPERTY) is None


def test_no_code_is_called_by_its_full_name(pipeline: Pipeline, spark: SparkSession) -> None:
    """K8: Spark knows functions by three names, too."""
    jvm: Any = spark._jvm
    for name in ("system.builtin.reflect", "builtin.java_method", "system.builtin.`Try_Reflect`"):
        with pytest.raises(SqlError):
            pipeline.execute(f"SELECT {CALL.replace('java_method', name)}")
    assert jvm.java.lang.System.getProperty(PROPERTY) is None


FILES = [
    "SELECT * FROM csv.`{0}`", "SELECT * FROM text.`{0}`", "SELECT * FROM TEXT . `{0}`",
    "SELECT * FROM binaryFile.`{0}`", "SELECT * FROM json.`{0}`", "SELECT * FROM parquet.`{0}`",
    "SELECT * FROM orc.`{0}`", "SELECT * FROM jdbc.`jdbc:postgresql://h/d`",
    "SELECT (SELECT max(value) FROM text.`{0}`)", "SELECT * FROM s, text.`{0}`",
    "WITH x AS (SELECT * FROM text.`{0}`) SELECT * FROM x",
    "SELECT * FROM s WHERE text IN (SELECT value FROM text.`{0}`)",
    "SELECT * FROM IDENTIFIER('text.`{0}`')", "SELECT * FROM (TABLE text.`{0}`)",
    "SELECT * FROM delta.`{0}`", "SELECT * FROM quipu_view_offsets.`x`", "FROM text.`{0}` SELECT *",
    "SELECT * FROM STREAM text.`{0}`", "FROM s |> UNION ALL (SELECT value FROM text.`{0}`)",
    "SELECT from_xml(text, 'a INT', map('rowValidationXSDPath', '{0}')) FROM s",
    "SELECT from_xml('<a>1</a>', 'a INT', map(concat('ROWValidation', 'xsdPath'), '{0}'))",
    "SELECT from_xml(text, schema_of_xml('<a/>', map('rowValidationXSDPath', '{0}'))) FROM s",
    "SELECT schema_of_xml('<a>1</a>', map('rowValidationXSDPath', '{0}'))",
    "SELECT from_protobuf(cast(text AS BINARY), 'M', '{0}') FROM s",
    "SELECT to_protobuf(struct(text), 'M', '{0}') FROM s",
    "SELECT from_avro(cast(text AS BINARY), '\"int\"', map('avroSchemaUrl', '{0}')) FROM s",
    "SELECT schema_of_avro('\"int\"', map('avroSchemaUrl', '{0}'))",
]


@pytest.mark.parametrize("query", FILES)
def test_no_file_is_read(pipeline: Pipeline, secret: Path, query: str) -> None:
    """K8: files are no tables."""
    for create in ("", "CREATE VIEW bad AS ", "CREATE MATERIALIZED VIEW bad AS "):
        with pytest.raises(SqlError, match=SETTING) as raised:
            pipeline.execute(create + query.format(secret))
        assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("query", [
    "WITH x AS (SELECT 'hunter2' AS a) INSERT OVERWRITE DIRECTORY '{0}' USING csv SELECT a FROM x",
    "WITH x AS (SELECT 1 AS a) INSERT INTO csv.`{0}` SELECT a FROM x",
    "WITH x AS (SELECT 1 AS a) FROM x INSERT OVERWRITE DIRECTORY '{0}' USING csv SELECT a",
    "SELECT TRANSFORM(text) USING 'cat' FROM s", "SELECT TRANSFORM(1) USING 'touch {0}' AS (a)",
    "WITH x AS (SELECT 1 AS a) SELECT TRANSFORM(a) USING 'touch {0}' AS (b) FROM x",
    "SELECT input_file_name() FROM s", "SELECT input_file_block_start()",
    "SELECT * FROM python_worker_logs()",
])
def test_no_command_and_no_script_is_run(
    pipeline: Pipeline, tmp_path: Path, query: str
) -> None:
    """K8: a query changes nothing and starts nothing."""
    for create in ("", "CREATE VIEW bad AS "):
        with pytest.raises(SqlError):
            pipeline.execute(create + query.format(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("statement", [
    "ADD JAR '/tmp/x.jar'", "SET spark.sql.runSQLOnFiles=true",
    "LOAD DATA INPATH '/x' INTO TABLE t",
    "CREATE FUNCTION f AS 'x.Y' USING JAR '/tmp/x.jar'", "INSERT OVERWRITE DIRECTORY '/x' SELECT 1",
    "CREATE TABLE t USING csv LOCATION '/etc'", "EXECUTE IMMEDIATE 'SELECT 1'", "RESET",
    "BEGIN SELECT 1; END", "REFRESH TABLE t", "DESCRIBE t", "CACHE TABLE t", "USE default"])
def test_other_statements_of_spark_are_none_of_ours(pipeline: Pipeline, statement: str) -> None:
    """K8, I19."""
    with pytest.raises(SqlError):
        pipeline.execute(statement)


def test_variables_are_not_put_in(pipeline: Pipeline) -> None:
    """K8: ${env:…} and ${system:…} stay as they are written."""
    found: Any = pipeline.execute(
        "SELECT '${env:PATH}', '${system:java.home}', '${spark.app.name}'")
    assert tuple(found.collect()[0]) == ("${env:PATH}", "${system:java.home}", "${spark.app.name}")


def test_entities_of_xml_are_not_read(pipeline: Pipeline, secret: Path) -> None:
    """K8: neither by xpath nor by from_xml."""
    xml = f'<!DOCTYPE a [<!ENTITY x SYSTEM "file://{secret}">]><a>&x;</a>'
    for query in (f"SELECT xpath_string('{xml}', 'a')", f"SELECT from_xml('{xml}', 'a STRING')"):
        try:
            found: Any = pipeline.execute(query)
            shown = str(found.collect())
        except Exception as error:  # noqa: BLE001 refused is as good
            shown = str(error)
        assert "hunter2" not in shown


@pytest.mark.parametrize("query", [
    "SELECT 1", "VALUES (1), (2)", "SELECT * FROM range(3)", "SELECT explode(array(1, 2))",
    "SELECT * FROM explode(array(1, 2))", "WITH x AS (SELECT text FROM s) SELECT * FROM x, x y",
    "SELECT count(*) FROM s WHERE text IN (SELECT text FROM s)", "SELECT current_date()",
    "SELECT text, row_number() OVER (ORDER BY text) FROM s", "SELECT 'java_method(csv.`x`)'",
    "SELECT s.text AS reflect FROM s", "SELECT * FROM s PIVOT (count(*) FOR text IN ('a', 'b'))",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT * FROM r",
    "SELECT from_xml('<a><b>1</b></a>', 'b INT', map('mode', 'FAILFAST'))", "FROM s |> SELECT text",
    "SELECT * FROM s TABLESAMPLE (50 PERCENT)", "SELECT /*+ BROADCAST(s) */ * FROM s LIMIT 1",
])
def test_queries_that_reach_nothing_are_as_they_were(pipeline: Pipeline, query: str) -> None:
    """I13: what is refused is only what reaches out."""
    found: Any = pipeline.execute(query)
    assert found.collect() is not None


def test_it_can_be_allowed(spark: SparkSession, tmp_path: Path, secret: Path) -> None:
    """I13: one setting for all of it."""
    with connect(spark, state=tmp_path / "open", settings={SETTING: "true"}) as pipeline:
        found: Any = pipeline.execute(f"SELECT value FROM text.`{secret}`")
        assert [tuple(row) for row in found.collect()] == [("hunter2",)]
        found = pipeline.execute("SELECT java_method('java.lang.Math', 'abs', -5)")
        assert [tuple(row) for row in found.collect()] == [("5",)]
    assert parsed({SETTING: "TRUE"})[0].sql_outside_enabled
    assert not parsed({})[0].sql_outside_enabled

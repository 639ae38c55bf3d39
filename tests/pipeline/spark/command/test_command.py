"""`quipu sql` on a real Spark: the engine in this process, and the command in processes of its own.

What needs no Spark is in tests/cli/test_sql*.py.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from quipu.cli.sql.engine import ResultRows, RowChanges
from quipu.cli.sql.progress import wait_until_current
from quipu.cli.sql.runner import EngineRunner, Interrupted
from quipu.cli.sql.spark_engine import SparkEngine
from quipu.cli.sql.statements import run_script
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.parser import pieces
from quipu.pipeline.sql.statements import ObjectKind
from tests.harness.node import environment
from tests.harness.progress import FINAL_SECONDS, slowdown
from tests.pipeline.spark.broker import Broker

PROCESS_SECONDS_MAX = 600.0  # machines that run tests are busy


@pytest.fixture
def runner(spark: SparkSession, broker: Broker, tmp_path: Path) -> Iterator[EngineRunner]:
    engine = SparkEngine(tmp_path / "state", bootstrap=broker.bootstrap, spark=spark)
    with contextlib.closing(engine), EngineRunner(engine) as made:
        yield made


def people(topic: str) -> str:
    return (f"CREATE SOURCE people (name text, age int) FROM KAFKA TOPIC '{topic}' "
            'KEY FORMAT TEXT VALUE FORMAT JSON INCLUDE KEY AS id, OFFSET AS "Off" '
            "ENVELOPE UPSERT;")


def test_a_script_is_carried_out_and_shown(
    runner: EngineRunner, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    """I3, I6, I13: a source at the default broker, a view of it, rows as a table and as JSON."""
    topic = broker.topic()
    broker.send(topic, 'a:{"name": "Ada", "age": 36}', 'b:{"name": "Bo"}', 'c:{"name": "C"}', "c:")
    run_script(runner, people(topic) + """
        CREATE MATERIALIZED VIEW grown AS SELECT id, name, age, `Off` FROM people;
        SELECT * FROM grown ORDER BY id;""", as_json=False)

    captured = capsys.readouterr()
    assert captured.out == (
        "id  name   age  Off\n"
        "--  ----  ----  ---\n"
        "a   Ada     36    0\n"
        "b   Bo    NULL    1\n"
    )
    assert captured.err == "CREATE SOURCE\nCREATE VIEW\n(2 rows)\n"

    run_script(runner, "SELECT `Off`, id FROM grown WHERE id = 'a'", as_json=True)
    assert json.loads(capsys.readouterr().out) == {"Off": 0, "id": "a"}
    engine = runner.engine
    assert engine.names()[ObjectKind.VIEW] == ["grown"]
    assert list(engine.columns("people")) == ["id", "name", "age", "Off"]
    assert list(engine.columns("nothing")) == []


def test_progress_tells_messages_and_lag_and_waiting_ends(
    runner: EngineRunner, broker: Broker
) -> None:
    """I20: what was there is taken in within a bounded wait, and the lag is nothing then."""
    topic = broker.topic()
    broker.send(topic, 'a:{"name": "Ada"}', "a:nonsense", 'b:{"name": "Bo"}')
    statement = people(topic).replace("CREATE", "CREATE MATERIALIZED", 1)
    run_script(runner, statement, as_json=False)

    assert wait_until_current(runner, FINAL_SECONDS)
    (found,) = runner.engine.progress()
    assert (found.view, found.source, found.state) == ("people", "people", "running")
    assert (found.messages, found.lag, found.dead_letters, found.error) == (3, 0, 1, None)


def test_spark_complaints_point_into_the_script(runner: EngineRunner, broker: Broker) -> None:
    """I19: a mistake within a query is underlined where it stands in the whole text."""
    topic = broker.topic()
    script = people(topic) + "\nSELECT nme FROM people;"
    with pytest.raises(SqlError) as raised:
        run_script(runner, script, as_json=False)

    assert (raised.value.line, raised.value.column) == (2, 8)
    assert "SELECT nme FROM people;\n           ^^^" in str(raised.value)
    assert "name" in raised.value.hint


def test_a_statement_is_cancelled_and_the_next_one_runs(runner: EngineRunner) -> None:
    """I13: Ctrl-C ends the jobs of the statement; nothing else is ended."""
    slow = ("SELECT sum(CASE WHEN a.id % 7 = b.id % 3 THEN 1 ELSE 0 END) "
            "FROM range(4000000000) a JOIN range(1000) b ON a.id % 1000 >= b.id")
    engine = runner.engine
    (piece,) = pieces(slow)
    threading.Timer(3.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    begun = time.monotonic()
    with pytest.raises(Interrupted):
        runner.wait_for(lambda: engine.run(slow, piece), engine.activity)
    assert time.monotonic() - begun < 30 * slowdown()

    (piece,) = pieces("SELECT 1 AS one")
    answer = runner.wait_for(lambda: engine.run("SELECT 1 AS one", piece), str)
    assert isinstance(answer, ResultRows)
    assert list(answer.blocks) == [[(1,)]]


def test_a_bad_record_of_a_strict_source_is_told_in_a_sentence(
    quipu_sql: Callable[..., int], broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    """I15, I19: no stack of Java's or Python's, as a table or as JSON, and exit code 1."""
    topic = broker.topic()
    broker.send(topic, "a:1", b"b:\xff")
    for envelope, more in (("NONE", []), ("UPSERT", ["--json"])):
        script = (f"CREATE SOURCE {envelope}_s FROM KAFKA TOPIC '{topic}' KEY FORMAT TEXT "
                  f"VALUE FORMAT TEXT INCLUDE KEY ENVELOPE {envelope} WITH (ERRORS = 'strict'); "
                  f"SELECT * FROM {envelope}_s; SELECT 1")
        code = quipu_sql("-e", script, *more)

        told = capsys.readouterr()
        assert (code, told.out) == (1, "")
        last = told.err.splitlines()[-1]
        assert last.startswith(f"quipu: source {envelope.lower()}_s: Decode error: Failed to ")
        assert "Traceback" not in told.err
        assert "Exception" not in told.err


def test_changes_are_followed_until_nobody_looks(runner: EngineRunner, broker: Broker) -> None:
    """I13: SUBSCRIBE shows rows, then what came and what went, by version."""
    topic = broker.topic()
    broker.send(topic, 'a:{"name": "Ada"}')
    statement = people(topic).replace("CREATE", "CREATE MATERIALIZED", 1)
    run_script(runner, statement, as_json=False)
    (piece,) = pieces("SUBSCRIBE TO people")
    answer = runner.wait_for(lambda: runner.engine.run("SUBSCRIBE TO people", piece), str)
    assert isinstance(answer, RowChanges)
    assert [each.name for each in answer.headings] == [
        "version", "diff", "id", "name", "age", "Off"]

    blocks = runner.follow(answer.blocks, [])
    (first,) = next(block for block in blocks if block)
    assert first[1:] == (1, "a", "Ada", None, 0)
    broker.send(topic, 'a:{"name": "Adele"}')
    changed = next(block for block in blocks if block)
    assert sorted(row[1:4] for row in changed) == [(-1, "a", "Ada"), (1, "a", "Adele")]
    blocks.close()


@pytest.mark.slow
def test_views_are_served_and_found_again_by_the_next_process(
    broker: Broker, tmp_path: Path
) -> None:
    """I11, I13, I20: --serve until SIGTERM, clean; a second process goes on with the same state."""
    topic = broker.topic()
    broker.send(topic, 'a:{"name": "Ada", "age": 36}')
    script = tmp_path / "views.sql"
    script.write_text(people(topic) + "CREATE MATERIALIZED VIEW v AS SELECT name FROM people;")
    common = ["--bootstrap", broker.bootstrap, "--state", str(tmp_path / "state"), "--json",
              "--master", "local[2]", "--set",
              "spark.driver.extraJavaOptions=-Xshare:auto -XX:TieredStopAtLevel=1"]
    command = [sys.executable, "-m", "quipu", "sql", *common]
    with subprocess.Popen(
        [*command, "-f", str(script), "--serve", "--every", "0.3"], env=environment(),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        killer = threading.Timer(PROCESS_SECONDS_MAX, process.kill)
        killer.start()
        for line in process.stdout:
            found = json.loads(line)
            if (found["messages"], found["lag"]) == (1, 0):
                break
        process.send_signal(signal.SIGTERM)
        told = process.stderr.read()
        assert process.wait() == 0, told
        killer.cancel()
    assert told.startswith(f"state: {tmp_path / 'state'}\n")
    assert told.endswith("CREATE SOURCE\nCREATE VIEW\nstopping\n")

    broker.send(topic, 'b:{"name": "Bo", "age": 3}')
    done = subprocess.run(
        [*command, "-e", "SELECT * FROM v ORDER BY name; SELECT nonsense FROM v"],
        env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        timeout=PROCESS_SECONDS_MAX,
    )
    assert done.returncode == 1
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"name": "Ada"}, {"name": "Bo"}]
    assert "line 1, column 39" in done.stderr
    assert "Traceback" not in done.stderr

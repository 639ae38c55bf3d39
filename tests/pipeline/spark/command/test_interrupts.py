"""Ctrl-C in `quipu sql`: it ends the statement that runs, soon, and nothing else."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.harness.node import environment
from tests.harness.progress import slowdown, wait_for
from tests.harness.terminal import CTRL_C, CTRL_D, Terminal
from tests.pipeline.spark.broker import Broker

SOON_SECONDS = 2.0  # 1 s, and as much for a machine with something else to do
FIRST_SECONDS_MAX = 600.0  # the first batch of a Spark that has just started, on a busy machine
LATE = "quipu.trigger.ms=600000"  # after its first batch, a view sees nothing for ten minutes
LONG = ("SELECT sum(CASE WHEN a.id % 7 = b.id % 3 THEN 1 ELSE 0 END) AS n "
        "FROM range(4000000000) a JOIN range(1000) b ON a.id % 1000 >= b.id")
COUNTED = """CREATE SOURCE s FROM KAFKA TOPIC '{topic}' FORMAT TEXT;
CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM s; SELECT n + 100 AS n FROM v;"""


@pytest.mark.slow
def test_ctrl_c_in_the_shell_ends_a_statement_soon(broker: Broker, tmp_path: Path) -> None:
    """I13: what waits for a view and what computes is ended, and the shell goes on."""
    topic = broker.topic()
    broker.send(topic, ":a", ":b")
    command = [sys.executable, "-m", "quipu", "sql", "--bootstrap", broker.bootstrap,
               "--state", str(tmp_path), "--master", "local[2]", "--set", LATE, "--set",
               "spark.driver.extraJavaOptions=-Xshare:auto -XX:TieredStopAtLevel=1"]
    with Terminal(command, environment()) as terminal:
        terminal.wait_for("sql>")
        terminal.type(COUNTED.format(topic=topic).replace("\n", " ") + "\r")
        terminal.wait_for("102", FIRST_SECONDS_MAX)
        terminal.wait_for("sql>")
        broker.send(topic, ":c")

        for statement, status in (("SELECT * FROM v;", "1.0 s"), (f"{LONG};", " tasks")):
            terminal.type(f"{statement}\r")
            terminal.wait_for(status)
            terminal.type(CTRL_C)
            assert terminal.wait_for("cancelled") < SOON_SECONDS * slowdown()
            terminal.wait_for("sql>")

        terminal.type("SELECT sum(id) + 1000 AS n FROM range(10);\r")
        assert terminal.wait_for("1045") < SOON_SECONDS * slowdown()  # no core is busy
        terminal.wait_for("sql>")
        terminal.type(CTRL_D)
        assert terminal.code() == 0


def test_ctrl_c_ends_a_command_with_130(
    quipu_sql: Callable[..., int], spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """I13: the job of a script is ended, the rest of the script is left out; Spark goes on."""
    tracker = spark.sparkContext.statusTracker()
    interrupted: list[float] = []

    def interrupt() -> None:
        wait_for(lambda: bool(tracker.getActiveJobsIds()))
        interrupted.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # PySpark has set its own
    try:
        threading.Thread(target=interrupt).start()
        code = quipu_sql("-e", f"{LONG}; SELECT 2")
        took = time.monotonic() - interrupted[0]
    finally:
        signal.signal(signal.SIGINT, before)

    assert code == 130
    assert took < SOON_SECONDS * slowdown()
    told = capsys.readouterr()
    assert told.out == ""
    assert "Traceback" not in told.err
    assert not tracker.getActiveJobsIds()
    assert spark.range(3).count() == 3

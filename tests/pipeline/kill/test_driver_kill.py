"""`kill -9` of a Spark driver while views and sinks are at work: nothing is lost or doubled.

The driver is a real process with a JVM and workers; all of them are killed, at moments drawn from a
seed, some of them while it starts.  PIPELINE_KILLS and PIPELINE_SEED let `make soak` run longer and
elsewhere.
"""

import itertools
import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.harness.driver import RunningDriver, changes, session_of
from tests.harness.node import RunningNode
from tests.harness.progress import wait_for
from tests.pipeline.kill import oracle
from tests.pipeline.kill.oracle import Message, Row
from tests.pipeline.kill.traffic import PARTITIONS, Traffic
from tests.pipeline.spark.broker import Broker

KILLS = int(os.environ.get("PIPELINE_KILLS", "2"))
SEED = int(os.environ.get("PIPELINE_SEED", "11"))
VERSIONS_MIN = 2  # that a driver makes of each view before it is killed, unless it is starting
RUN_SECONDS = (0.0, 1.5)  # after that
SETTINGS = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
            "quipu.batch.offsets.max": "1000",  # so that there are many versions
            "quipu.trigger.ms": "1500", "quipu.wait.ms": "120000"}
CHECKS_MAX = 12  # versions that are computed anew, of one view and one driver

VIEWS: dict[str, Callable[[list[Message]], Counter[Row]]] = {
    "latest": oracle.latest, "bought": oracle.bought, "plain": oracle.plain}
FOLLOWED = ("latest", "bought")


def statements(bootstrap: str, folder: Path) -> list[str]:
    """A view by key, a join, a view that only grows; and sinks, of those that promise something."""
    source = f"FROM KAFKA BROKER '{bootstrap}' TOPIC"
    text = "KEY FORMAT TEXT VALUE FORMAT TEXT INCLUDE"
    topic = f"INTO KAFKA BROKER '{bootstrap}' TOPIC"
    made = {
        "SOURCE": f"""people {source} 'people' {text} KEY AS id, PARTITION, OFFSET ENVELOPE UPSERT
            orders {source} 'orders' {text} KEY AS person, PARTITION, OFFSET ENVELOPE NONE""",
        "MATERIALIZED VIEW": """latest AS SELECT id, text AS name, partition, offset FROM people
            bought AS SELECT o.text AS n, id, p.text FROM orders o JOIN people p ON person = id
            plain AS SELECT text AS number, person, partition, offset FROM orders""",
        "SINK": f"""files FROM latest INTO PARQUET '{folder / 'files'}'
            lake FROM plain INTO DELTA '{folder / 'lake'}'
            keyed FROM latest {topic} 'keyed' KEY (id) FORMAT JSON
            rows FROM plain {topic} 'rows' FORMAT JSON""",
    }
    return [f"CREATE {kind} IF NOT EXISTS {line.strip()}"
            for kind, lines in made.items() for line in lines.splitlines()]


class Run:
    """One story: drivers, one after the other, over one state."""

    def __init__(self, folder: Path, node: RunningNode) -> None:
        self.folder = folder
        self.node = node
        self.driver = RunningDriver(folder / "driver.log")
        self.logs: list[Path] = []
        self.start_seconds = 0.0
        self._numbers = itertools.count(1)

    def launch(self) -> None:
        """Start a driver, and tell it to connect."""
        self.driver.start()
        self.driver.send("connect", state=str(self.folder / "state"), master="local[2]",
                         settings=SETTINGS)

    def begin(self) -> None:
        """Start a driver, and wait until it follows its views."""
        started = time.monotonic()
        self.launch()
        self.driver.answer()
        for statement in statements(self.node.bootstrap, self.folder):
            self.driver.execute(statement)
        number = next(self._numbers)
        for view in FOLLOWED:
            self.logs.append(self.folder / f"{view}-{number}.jsonl")
            self.driver.follow(view, self.logs[-1])
        self.start_seconds = time.monotonic() - started

    def go_on(self) -> None:
        """Wait until the driver has made some more versions of each view."""
        wanted = {view: self.version(view) + VERSIONS_MIN for view in VIEWS}
        self.wait_for(
            lambda: all(self.version(view) >= number for view, number in wanted.items()),
            lambda: [self.version(view) for view in VIEWS])

    def wait_for(self, reached: Callable[[], bool], progress: Callable[[], object]) -> None:
        """Wait for as long as the driver makes progress, by its files or by its CPU time."""
        pid = self.driver.process.pid
        wait_for(reached, progress=progress, processes=lambda: session_of(pid), pause=0.1)

    def version(self, view: str) -> int:
        """The newest version of a view; -1 if there is none."""
        found = (self.folder / "state" / "views").glob(f"{view}-*/versions/*.json")
        return max((int(path.stem) for path in found), default=-1)

    def restart_node(self) -> None:
        """The broker dies, too, and comes back where it was."""
        self.node.kill()
        time.sleep(0.3)
        self.node.start()


@pytest.mark.timeout(1_800 + 300 * KILLS)  # waits are by progress; this is for what hangs
def test_views_and_sinks_are_exact_whenever_the_driver_is_killed(tmp_path: Path) -> None:
    """I11, I13: what views, changelogs and sinks hold is what the topics say, after any kill."""
    rng = random.Random(SEED)
    with RunningNode(tmp_path / "data") as node:
        broker = Broker(node.bootstrap)
        for topic in ("people", "orders", "keyed", "rows"):
            broker.topic(name=topic, partitions=PARTITIONS)
        traffic = Traffic(node.bootstrap, rng)
        traffic.start()
        run = Run(tmp_path, node)
        try:
            for number in range(KILLS):
                if number % 3 == 1:
                    run.launch()
                    time.sleep(rng.uniform(0.2, 1.5) * run.start_seconds)
                else:
                    run.begin()
                    if number % 2 == 0:
                        run.restart_node()
                    run.go_on()
                    time.sleep(rng.uniform(*RUN_SECONDS))
                run.driver.kill()
            run.begin()
            run.restart_node()
            run.go_on()
            count = traffic.finish()
            check(run, count)
        finally:
            run.driver.kill()


def check(run: Run, count: int) -> None:
    """Compare everything with what the topics say."""
    messages = oracle.read(run.node.bootstrap, "people", "orders")
    assert len(messages) == count
    wanted = {view: compute(messages) for view, compute in VIEWS.items()}
    for view in VIEWS:
        assert Counter(run.driver.execute(f"SELECT * FROM {view}")) == wanted[view], view
        assert max(wanted[view].values()) == 1
    check_sinks(run, wanted)
    checked = check_changelogs(run, messages, wanted)
    print(f"{count} messages, {KILLS} kills, seed {SEED}; {checked} versions checked; "
          f"a start takes {run.start_seconds:.1f} s")


def check_sinks(run: Run, wanted: dict[str, Counter[Row]]) -> None:
    """Each has each version once."""
    last = {view: run.driver.call("wait", view=view) for view in VIEWS}

    def sinks() -> list[Row]:  # name, from, into, version, state, error
        return run.driver.execute("SHOW SINKS")

    run.wait_for(lambda: all(version == last[view] for _, view, _, version, *_ in sinks()), sinks)

    changelog: Counter[Row] = Counter()
    for path in sorted((run.folder / "files").glob("*.parquet")):
        for row in pq.read_table(path).to_pylist():
            changelog[row["id"], row["name"], row["partition"], row["offset"]] += row["_diff"]
    assert +changelog == wanted["latest"]
    assert not -changelog

    table = DeltaTable(str(run.folder / "lake")).to_pyarrow_table()
    assert Counter(tuple(row.values()) for row in table.to_pylist()) == wanted["plain"]

    newest = {each.key: each.value for each in oracle.read(run.node.bootstrap, "keyed")}
    assert Counter(_fields(value) for value in newest.values() if value) == wanted["latest"]
    sent = oracle.read(run.node.bootstrap, "rows")
    assert Counter(_fields(each.value) for each in sent) == wanted["plain"]


def _fields(value: str | None) -> Row:
    assert value is not None
    return tuple(json.loads(value).values())


def check_changelogs(run: Run, messages: list[Message], wanted: dict[str, Counter[Row]]) -> int:
    """What every driver told its followers was the view as of that version, until it was killed."""
    checked = 0
    for log in run.logs:
        view = log.name.partition("-")[0]
        is_last = log in run.logs[-len(FOLLOWED):]
        if is_last:
            run.wait_for(partial(_has_followed, log, wanted[view]), partial(_size, log))
        told = list(changes(log))
        starts = [index for index, change in enumerate(told) if "places" in change]
        whole = list(itertools.pairwise(starts))  # the last one may have been cut short
        for start, end in whole[::max(1, len(whole) // CHECKS_MAX)]:
            seen = oracle.before(messages, told[start]["places"].values())
            assert fold(told[:end]) == VIEWS[view](seen), (log, told[start]["version"])
            checked += 1
    assert checked > 0
    return checked


def _has_followed(log: Path, wanted: Counter[Row]) -> bool:
    return fold(list(changes(log))) == wanted


def _size(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


def fold(told: list[dict[str, Any]]) -> Counter[Row]:
    """What changes add up to; nothing goes that was not there."""
    rows: Counter[Row] = Counter()
    for change in told:
        rows[tuple(change["row"])] += change["diff"]
    assert not -rows
    return +rows

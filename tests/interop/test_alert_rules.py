"""The alert rules of deploy/, read and evaluated by Prometheus itself.

tests/deploy evaluates them at every `make test`, with an evaluator of its own; here the two must
say the same of the same series.
"""

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.promql import Database, evaluate
from tests.deploy.test_placement_alerts import RULES, TARGET
from tests.harness.racked import Scrape
from tests.interop.software import folder_of

pytestmark = pytest.mark.interop

SECONDS_MAX = 60.0
START = 1_800_000_000.0
SCRAPES = 80
SCRAPE_SECONDS = 15.0
CONTROLLER = "kafka_controller_diskless_"
OTHERS = (  # what the rules are made of
    "1 < kafka_controller_diskless_rack_state", "time() - kafka_controller_diskless_rack_state",
    'kafka_controller_diskless_rack_state{rack="r1"} * 3 - 1',
    "sum by (topic) (kafka_controller_diskless_placement_drift)",
    "max by (partition) (kafka_controller_diskless_rack_coverage) >= 100",
    "kafka_controller_diskless_rack_state + kafka_controller_diskless_rack_degraded_since_ms",
    "kafka_controller_diskless_rack_state / 2 != 0.5")


@pytest.fixture(scope="module")
def rules() -> Path:
    """The program that asks Prometheus."""
    return folder_of("prometheus") / "rules"


def run(rules: Path, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(rules), *words], input=given, capture_output=True, text=True,
                          timeout=SECONDS_MAX, check=False)


def test_prometheus_reads_the_rules(rules: Path, tmp_path: Path) -> None:
    """D29: all four, without a complaint; and it does complain of a wrong one."""
    done = run(rules, "check", str(RULES))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [each["alert"] for each in _rules()]
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(RULES.read_text().replace("min by (job, topic)", "min by job"))
    assert run(rules, "check", str(wrong)).returncode == 1


@pytest.mark.parametrize("seed", range(4))
def test_the_evaluator_of_the_tests_says_what_prometheus_says(rules: Path, seed: int) -> None:
    """D29: of each rule, and of what they are made of, at many times."""
    database = random_series(random.Random(seed))
    expressions = [*(each["expr"] for each in _rules()), *OTHERS]
    # A sample of exactly five minutes ago is a matter of versions: times are between scrapes.
    times = [START + number * 97.0 + 1.0 for number in range(15)]
    asked = [(expression, at) for expression in expressions for at in times]
    done = run(rules, "evaluate", given=json.dumps({
        "series": [{"labels": dict(labels), "samples": [[at * 1000, number]
                    for at, number in samples]} for labels, samples in database.series.items()],
        "queries": [{"expression": expression, "at": int(at * 1000)} for expression, at in asked]}))
    assert done.returncode == 0, done.stderr
    found = 0
    for (expression, at), theirs in zip(asked, json.loads(done.stdout), strict=True):
        ours = evaluate(database, expression, at)
        assert isinstance(ours, dict)
        assert ours == pytest.approx(
            {frozenset(each["labels"].items()): each["value"] for each in theirs}), (expression, at)
        found += len(ours)
    assert found > 100


def random_series(rng: random.Random) -> Database:
    """A controller whose racks and placements change at random."""
    database = Database()
    state: dict[str, Any] = dict.fromkeys(("r1", "r2", "r3"), 0.0)
    backlog = 0.0
    for number in range(SCRAPES):
        at = START + number * SCRAPE_SECONDS
        for rack, since in state.items():
            if rng.random() < 0.1:
                state[rack] = 0.0 if since else at * 1000
        backlog = max(0.0, backlog + rng.randint(-2, 3))
        racks = {rack: frozenset({("rack", rack)}) for rack in state}
        parts = [frozenset({("topic", topic), ("partition", str(index))})
                 for topic in ("t", "u") for index in range(3)]
        scrape: Scrape = {
            "rack_state": {racks[rack]: float(bool(since)) for rack, since in state.items()},
            "rack_degraded_since_ms": {racks[rack]: since for rack, since in state.items()},
            "rack_unavailable_threshold_ms": {frozenset(): 300_000.0},
            "reassignment_backlog": {frozenset(): backlog},
            "rack_coverage": {part: rng.choice((66.0, 100.0, 100.0)) for part in parts},
            "placement_drift": {part: rng.choice((0.0, 0.0, 1.0)) for part in parts}}
        database.add(at, {CONTROLLER + name: each for name, each in scrape.items()}, **TARGET)
    return database


def _rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found

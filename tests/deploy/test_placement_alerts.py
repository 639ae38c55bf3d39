"""The alert rules of managed placement, on the metrics of a real node: they fire when they should.

The numbers are scraped from a node as its racks and replicas change; the time at which each scrape
counts is chosen, so that a quarter of an hour takes none.
"""

import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from quipu.controller.racks import RackState, racks_of
from tests.broker.diskless.parts import until
from tests.deploy.promql import Alert, Database, evaluate, names_in
from tests.harness.racked import RackedNode, Scrape, value
from tests.looped import looped

REPOSITORY = Path(__file__).resolve().parents[2]
RULES = REPOSITORY / "deploy" / "prometheus" / "placement-alerts.yaml"
DOCUMENT = REPOSITORY / "docs" / "operating" / "diskless-placement.md"
SCRAPE_SECONDS = 15.0
MINUTE = 60.0
LONG_AGO = 24 * 60 * MINUTE
TARGET = {"job": "quipu", "instance": "node-1"}
BACKLOG = "kafka_controller_diskless_reassignment_backlog"


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def alert(name: str) -> Alert:
    (rule,) = (each for each in rules() if each["alert"] == name)
    return Alert(rule)


class Timeline:
    """A Prometheus that scrapes one node, and evaluates one rule after each scrape."""

    def __init__(self, rule: Alert) -> None:
        self.now = time.time() - LONG_AGO  # the node's times are real ones
        self.rule = rule
        self.database = Database()
        self.firing: list[dict[str, str]] = []

    def hold(self, scrape: Scrape, seconds: float) -> list[dict[str, str]]:
        """What fires after the node has shown the same for some time."""
        end = self.now + seconds
        while self.now < end:
            self.now += SCRAPE_SECONDS
            self.database.add(self.now, scrape, **TARGET)
            self.firing = self.rule.firing(self.database, self.now)
        return self.firing


@looped
async def test_a_degraded_rack_alerts_at_half_of_its_threshold(tmp_path: Path) -> None:
    """D29: not before, whatever the threshold is; and not when it is back, or given up."""
    async with RackedNode(
            tmp_path, diskless_managed_rf_rack_unavailable_threshold_ms="600000") as node:
        await node.join(2, "r2")
        await node.join(3, "r3")
        timeline = Timeline(alert("DisklessRackDegraded"))
        healthy = await node.scrape()
        assert timeline.hold(healthy, 10 * MINUTE) == []
        await node.leave(2)
        degraded = await node.scrape()
        since = value(degraded, "kafka_controller_diskless_rack_degraded_since_ms", rack="r2")
        timeline.now = since / 1000
        assert timeline.hold(degraded, 5 * MINUTE) == []  # exactly the half
        assert timeline.hold(degraded, SCRAPE_SECONDS) == [{**TARGET, "rack": "r2"}]
        assert timeline.hold(degraded, 4 * MINUTE) == [{**TARGET, "rack": "r2"}]
        await node.join(2, "r2")
        assert timeline.hold(await node.scrape(), SCRAPE_SECONDS) == []


@looped
async def test_a_rack_that_is_given_up_does_not_alert_as_degraded(tmp_path: Path) -> None:
    """D29: it is UNAVAILABLE, which is another state."""
    async with RackedNode(
            tmp_path, diskless_managed_rf_rack_unavailable_threshold_ms="1") as node:
        await node.join(2, "r2")
        await node.leave(2)
        brokers = node.node.broker.cluster.state.brokers
        await until(lambda: racks_of(brokers.values())["r2"].state is RackState.UNAVAILABLE)
        timeline = Timeline(alert("DisklessRackDegraded"))
        given_up = await node.scrape()
        assert value(given_up, "kafka_controller_diskless_rack_state", rack="r2") == 2
        timeline.now = value(
            given_up, "kafka_controller_diskless_rack_degraded_since_ms", rack="r2") / 1000
        assert timeline.hold(given_up, 10 * MINUTE) == []


@looped
async def test_low_coverage_alerts_when_it_lasts(tmp_path: Path) -> None:
    """D29: after a quarter of an hour, once for a topic; a short loss does not."""
    async with RackedNode(tmp_path) as node:
        await node.join(2, "r2")
        await node.create_diskless("t", 3)
        timeline = Timeline(alert("DisklessRackCoverageLow"))
        healthy = await node.scrape()
        assert timeline.hold(healthy, 30 * MINUTE) == []
        await node.leave(2)
        short = await node.scrape()
        assert timeline.hold(short, 14 * MINUTE) == []
        assert timeline.hold(healthy, MINUTE) == []
        assert timeline.hold(short, 15 * MINUTE) == []  # the time counts anew
        assert timeline.hold(short, MINUTE) == [{"job": "quipu", "topic": "t"}]
        assert timeline.hold(healthy, SCRAPE_SECONDS) == []


@looped
async def test_a_backlog_that_grows_and_grows_alerts(tmp_path: Path) -> None:
    """D29: one step up does not, nor a backlog that shrinks."""
    async with RackedNode(tmp_path, diskless_managed_rf_auto_reconcile="false") as node:
        await node.join(2, "r2")
        await node.create_diskless("t", 12)
        reconciliation = node.node.broker.cluster.reconciliation
        timeline = Timeline(alert("DisklessReassignmentBacklogGrows"))
        assert timeline.hold(await node.scrape(), 20 * MINUTE) == []
        scrapes: list[Scrape] = []
        while len(scrapes) < 12:  # an operator takes the replicas of one rack away
            await node.move("t", len(scrapes), 1)
            await until(lambda: reconciliation.backlog == len(scrapes) + 1)
            scrapes.append(await node.scrape())
        assert [value(each, BACKLOG) for each in scrapes] == list(range(1, 13))
        assert timeline.hold(scrapes[0], 40 * MINUTE) == []  # one step
        fired = [bool(timeline.hold(scrape, 2 * MINUTE)) for scrape in scrapes]
        assert fired == [False] * 8 + [True] * 4  # it has grown for 15 minutes
        assert timeline.firing == [TARGET]
        for scrape in reversed(scrapes):
            timeline.hold(scrape, 2 * MINUTE)
        assert timeline.firing == []


@looped
async def test_drift_alerts_with_the_number_of_partitions(tmp_path: Path) -> None:
    """D29: an operator's move, by topic; not one that is repaired at once."""
    async with RackedNode(tmp_path, diskless_managed_rf_auto_reconcile="false") as node:
        await node.join(2, "r2")
        await node.create_diskless("t", 4)
        await node.create_diskless("u", 4)
        timeline = Timeline(alert("DisklessPlacementDrift"))
        steady = await node.scrape()
        assert timeline.hold(steady, 10 * MINUTE) == []
        for number in (1, 3):
            await node.move("t", number, 2)
        drifted = await node.scrape()
        assert timeline.hold(drifted, MINUTE) == []
        assert timeline.hold(steady, MINUTE) == []  # repaired soon
        assert timeline.hold(drifted, MINUTE + SCRAPE_SECONDS) == [{"job": "quipu", "topic": "t"}]
        found = evaluate(timeline.database, timeline.rule.expression, timeline.now)
        assert list(found.values()) == [2]  # type: ignore[union-attr]  # it is a vector


@looped
async def test_rules_use_metrics_that_exist(tmp_path: Path) -> None:
    """D29: every name is one that a controller shows; labels in texts are of the result."""
    async with RackedNode(tmp_path) as node:
        await node.create_diskless("t")
        shown = await node.scrape()
    names = set().union(*(names_in(rule["expr"]) for rule in rules()))
    assert len(names) == 6
    assert names <= shown.keys()


def test_the_four_alerts_are_documented() -> None:
    """D29: each has a severity, texts, and a row in the page that says what to do."""
    page = DOCUMENT.read_text(encoding="utf-8")
    assert len(rules()) == 4
    for rule in rules():
        assert f"`{rule['alert']}`" in page
        assert rule["labels"]["severity"] in ("critical", "warning")
        text = rule["annotations"]["summary"] + rule["annotations"]["description"]
        assert set(re.findall(r"\$labels\.(\w+)", text)) <= {"rack", "topic"}
        assert "quipu placement" in text


# -- the evaluator


def of(*samples: tuple[str, dict[str, str], float]) -> Database:
    database = Database()
    for name, labels, number in samples:
        database.add(100.0, {name: {frozenset(labels.items()): number}})
    return database


@pytest.mark.parametrize(("text", "wanted"), [
    ("a", {("x", "1"): 1.0, ("x", "2"): 2.0}),
    ("a > 1", {("x", "2"): 2.0}),
    ("1 < a", {("x", "2"): 2.0}),
    ("a * 3 - 1", {("x", "1"): 2.0, ("x", "2"): 5.0}),
    ("a and b", {("x", "2"): 2.0}),
    ("a + b", {("x", "2"): 22.0}),
    ("a > ignoring(x) group_left() c", {("x", "2"): 2.0}),
    ('a{x="1"}', {("x", "1"): 1.0}),
    ("time() - a", {("x", "1"): 119.0, ("x", "2"): 118.0}),
])
def test_expressions_mean_what_prometheus_says(text: str, wanted: dict[Any, float]) -> None:
    """D29: the evaluator itself, on what the rules use."""
    database = of(("a", {"x": "1"}, 1.0), ("a", {"x": "2"}, 2.0), ("b", {"x": "2"}, 20.0),
                  ("c", {}, 1.5))
    found = evaluate(database, text, 120.0)
    assert isinstance(found, dict)
    assert {label: number for labels, number in found.items() for label in labels
            if label[0] == "x"} == wanted


def test_aggregations_slopes_and_old_samples() -> None:
    """D29: by label; per second; and a sample of more than five minutes ago is not seen."""
    database = of(("a", {"x": "1", "y": "1"}, 1.0), ("a", {"x": "1", "y": "2"}, 3.0))
    group = frozenset({("x", "1")})
    for text, wanted in (("min by (x) (a)", 1.0), ("count by (x) (a > 2)", 1.0),
                         ("sum by (x) (a)", 4.0)):
        assert evaluate(database, text, 100.0) == {group: wanted}
    assert evaluate(database, "a", 400.0) == {}
    for at in (110.0, 120.0):
        database.add(at, {"b": {frozenset(): at * 2}})
    assert evaluate(database, "deriv(b[1m])", 120.0) == {frozenset(): pytest.approx(2.0)}
    with pytest.raises(NotImplementedError):
        evaluate(database, "rate(b[1m])", 120.0)

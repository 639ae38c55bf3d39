"""Metrics, pages and responses about placements agree, in every state of the racks."""

import json
from pathlib import Path
from typing import Any

import pytest

from quipu.broker.observing import metrics
from quipu.broker.observing.placement_metrics import (
    CONTROLLER_PLACEMENT,
    CONTROLLER_RACK,
    CONTROLLER_TOTALS,
    DISKLESS_LAG,
    EFFECTIVE_RF,
    PARTITIONS_MAX,
    ControllerPlacement,
    DisklessLagSample,
    PlacementSample,
    PlacementTotals,
    RackSample,
)
from quipu.broker.observing.placement_samples import placement_pages
from quipu.broker.observing.text_format import PIECE_LINES_MAX
from quipu.broker.serving.placements import Placements
from quipu.client.admin.placement import PLACEMENT_STATES, RACK_STATES
from quipu.controller.managed.describing import PlacementState
from quipu.controller.racks import RackState
from quipu.wire.messages.k75_describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from quipu.wire.messages.k10005_describe_racks import DescribeRacksRequest
from tests.broker.diskless.parts import create, fetch, list_offset, put, until
from tests.broker.observing.test_metrics import make_sources
from tests.harness.racked import RackedNode, parsed, value
from tests.looped import looped
from tests.wire.message_oracles import kafka_python_decode

CONTROLLER = "kafka_controller_diskless_"
SHORT_MS = "300"


async def described(node: RackedNode, topic: str = "t") -> Any:
    """A topic in DescribeTopicPartitions."""
    async with node.connect() as peer:
        response = await peer.ask(
            DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topic)]), 0)
    return response.topics[0]


async def racks(node: RackedNode) -> Any:
    async with node.connect() as peer:
        return await peer.ask(DescribeRacksRequest(), 0)


async def check_agreement(node: RackedNode) -> dict[str, Any]:
    """All views of partition 0 of `t` and of the racks say the same; what they say."""
    scrape, page, response = await node.scrape(), await node.page("/placement"), await racks(node)
    rack_page, topic = await node.page("/placement/racks"), await described(node)
    (row, *_), part = page["partitions"], topic.partitions[0]
    shown = [(each.name, each.state, each.degraded_since_ms) for each in response.racks]
    assert shown == [(each["rack"], RackState[each["rack_state"]], each["rack_degraded_since_ms"])
                     for each in rack_page["racks"]]
    for name, state, since_ms in shown:
        assert value(scrape, CONTROLLER + "rack_state", rack=name) == state
        assert value(scrape, CONTROLLER + "rack_degraded_since_ms", rack=name) == since_ms
    factors = {page["effective_rf"], rack_page["effective_rf"], response.effective_rf,
               topic.effective_rf, value(scrape, CONTROLLER + "effective_rf", topic="t")}
    assert len(factors) == 1
    assert value(scrape, CONTROLLER + "reassignment_backlog") == response.reassignment_backlog
    assert rack_page["reassignment_backlog"] == response.reassignment_backlog

    def number(name: str) -> float:
        return value(scrape, CONTROLLER + name, topic="t", partition=0)

    assert number("rack_coverage") == row["rack_coverage"] == part.rack_coverage
    assert number("placement_state") == PlacementState[row["placement_state"].upper()]
    assert number("placement_state") == part.placement_state
    assert number("placement_drift") == row["placement_drift"] == part.placement_drift
    assert number("exceptions") == len(row["exceptions"])
    assert row["exceptions"] == part.exceptions
    assert row["target_racks"] == part.target_racks
    assert row["assigned_racks"] == part.assigned_racks
    assert row["replicas"] == part.assigned_replicas
    return {**row, "rf": factors.pop(), "racks": {name: RackState(state).name
                                                  for name, state, _ in shown}}


@looped
async def test_the_views_agree_while_a_rack_goes_and_comes_back(tmp_path: Path) -> None:
    """D26, D28: HEALTHY, DEGRADED, UNAVAILABLE, and back: the same numbers everywhere."""
    async with RackedNode(
            tmp_path, diskless_managed_rf_rack_unavailable_threshold_ms="60000") as node:
        await node.join(2, "r2")
        await node.join(3, "r3")
        await node.create_diskless("t", 2)
        healthy = await check_agreement(node)
        assert (healthy["rf"], healthy["rack_coverage"], healthy["placement_state"]) == (
            3, 100, "steady")
        assert set(healthy["racks"].values()) == {"HEALTHY"}
        assert healthy["target_racks"] == ["r1", "r2", "r3"]
        assert sorted(healthy["assigned_racks"]) == ["r1", "r2", "r3"]

        await node.leave(3)
        degraded = await check_agreement(node)
        assert degraded["racks"] == {"r1": "HEALTHY", "r2": "HEALTHY", "r3": "DEGRADED"}
        assert (degraded["rf"], degraded["rack_coverage"]) == (3, 66)
        assert degraded["exceptions"] == ["missingRackCapacity"]
        assert (degraded["placement_state"], degraded["placement_drift"]) == ("steady", False)
        assert degraded["replicas"] == healthy["replicas"]

        await node.join(3, "r3")
        assert await check_agreement(node) == healthy


@looped
async def test_the_views_agree_when_a_rack_is_given_up(tmp_path: Path) -> None:
    """D26, D28: after the threshold the effective RF is less, and coverage is 100 again."""
    async with RackedNode(
            tmp_path, diskless_managed_rf_rack_unavailable_threshold_ms=SHORT_MS) as node:
        await node.join(2, "r2")
        await node.create_diskless("t")
        await node.leave(2)
        reconciliation = node.node.broker.cluster.reconciliation
        await until(lambda: reconciliation.moves == 1 and not reconciliation.backlog)
        given_up = await check_agreement(node)
        assert given_up["racks"] == {"r1": "HEALTHY", "r2": "UNAVAILABLE"}
        assert (given_up["rf"], given_up["target_racks"]) == (1, ["r1"])
        assert (given_up["rack_coverage"], given_up["assigned_racks"]) == (100, ["r1"])
        scrape = await node.scrape()
        assert value(scrape, CONTROLLER + "rack_unavailable_threshold_ms") == int(SHORT_MS)
        assert value(scrape, CONTROLLER + "reassignment_moves_total") == 1


@looped
async def test_an_operators_move_is_drift(tmp_path: Path) -> None:
    """D26, D28: observe only: drift 1, frozen, and in the backlog, until it is moved back."""
    async with RackedNode(tmp_path, diskless_managed_rf_auto_reconcile="false") as node:
        await node.join(2, "r2")
        await node.create_diskless("t", 3)
        before = await check_agreement(node)
        await node.move("t", 0, 1)
        await until(lambda: node.node.broker.cluster.reconciliation.backlog == 1)
        drifted = await check_agreement(node)
        assert (drifted["placement_state"], drifted["placement_drift"]) == ("frozen", True)
        assert (drifted["rack_coverage"], drifted["assigned_racks"]) == (50, ["r1"])
        scrape = await node.scrape()
        assert value(scrape, CONTROLLER + "auto_reconcile") == 0
        assert value(scrape, CONTROLLER + "placement_drift", topic="t", partition=1) == 0
        await node.move("t", 0, *before["replicas"])
        await until(lambda: not node.node.broker.cluster.reconciliation.backlog)
        assert {**await check_agreement(node), "leader": 0} == {**before, "leader": 0}


@looped
async def test_settings_that_change_while_a_node_runs_are_shown(tmp_path: Path) -> None:
    """D26: the threshold and the mode, as they apply now."""
    async with RackedNode(tmp_path, diskless_managed_rf_auto_reconcile="false",
                          diskless_managed_rf_rack_unavailable_threshold_ms="100") as node:
        await node.join(2, "r2")  # a new rack is not settled for as long as that
        await node.create_diskless("t")
        await node.move("t", 0, 1)
        reconciliation = node.node.broker.cluster.reconciliation
        await until(lambda: reconciliation.backlog == 1)
        assert (await check_agreement(node))["placement_state"] == "frozen"
        await node.set_of_brokers(
            diskless_managed_rf_rack_unavailable_threshold_ms="77777",
            diskless_managed_rf_auto_reconcile="true")
        await until(lambda: reconciliation.moves == 1 and not reconciliation.backlog)
        scrape, response = await node.scrape(), await racks(node)
        assert value(scrape, CONTROLLER + "auto_reconcile") == response.auto_reconcile == 1
        threshold_ms = value(scrape, CONTROLLER + "rack_unavailable_threshold_ms")
        assert threshold_ms == response.rack_unavailable_threshold_ms == 77777
        assert (await check_agreement(node))["placement_state"] == "steady"


@looped
async def test_a_node_without_a_rack_is_in_the_rack_unknown(tmp_path: Path) -> None:
    """D26: `unknown` is a rack like the others."""
    async with RackedNode(tmp_path, None) as node:
        assert value(await node.scrape(), CONTROLLER + "rack_state", rack="unknown") == 0


@looped
async def test_other_topics_have_no_placement(tmp_path: Path) -> None:
    """D28: a topic on a chain has no tagged field, and no series."""
    async with RackedNode(tmp_path) as node:
        await node.create("classic")
        topic = await described(node, "classic")
        assert (topic.effective_rf, topic.partitions[0].target_racks) == (-1, [])
        assert topic.partitions[0].placement_state == -1
        scrape = await node.scrape()
        assert CONTROLLER + "rack_coverage" not in scrape
        assert (await node.page("/placement"))["partitions"] == []


@looped
async def test_kafkas_clients_skip_the_tagged_fields(tmp_path: Path) -> None:
    """D28, K12: somebody else's codec reads the response, and keeps our fields apart."""
    async with RackedNode(tmp_path) as node:
        await node.create_diskless("t")
        topic = await described(node)
        data = DescribeTopicPartitionsResponse(topics=[topic]).encode(0)
        theirs = kafka_python_decode(data, DescribeTopicPartitionsResponse, 0).topics[0]
        assert (theirs.name, theirs.partitions[0].leader_id) == ("t", 1)
        assert set(theirs.partitions[0].unknown_tags) == {
            "_100", "_101", "_102", "_103", "_105"}


@looped
async def test_only_the_controller_shows_placements(tmp_path: Path) -> None:
    """D26: a node that is not the controller has no such series, and no backlog on its page."""
    async with RackedNode(tmp_path) as node:
        await node.create_diskless("t")
        assert CONTROLLER + "rack_state" in await node.scrape()
        node.node.broker.cluster.reconciliation.end()
        assert not [name for name in await node.scrape() if name.startswith(CONTROLLER)]
        page = await node.page("/placement/racks")
        assert (page["is_controller"], page["reassignment_backlog"]) == (False, None)


# -- pages


@looped
async def test_pages_of_placements_follow_each_other(tmp_path: Path) -> None:
    """D28: bounded pages by topic and partition; a wrong query is told."""
    async with RackedNode(tmp_path) as node:
        for name, count in (("b", 3), ("a", 2), ("c", 1)):
            await node.create_diskless(name, count)
        found, path, pages = [], "/placement?limit=2", 0
        while path:
            page = await node.page(path)
            found += [(each["topic"], each["partition"]) for each in page["partitions"]]
            path = f"/placement?limit=2&from={page['next']}" if page["next"] else ""
            pages += 1
        assert found == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]
        assert pages == 3
        named = await node.page("/placement?topic=c&topic=a")
        assert [each["topic"] for each in named["partitions"]] == ["a", "a", "c"]
        for query, status, word in (
                ("limit=0", 400, "1 to 1000"), ("limit=1001", 400, "1 to 1000"),
                ("limit=x", 400, "1 to 1000"), ("from=a", 400, "TOPIC:PARTITION"),
                ("what=1", 400, "what"), ("topic=zz", 404, "zz")):
            code, body = await node.get(f"/placement?{query}")
            assert code == status
            assert word in json.loads(body)["error"]
        assert (await node.get("/placement/racks?x=1"))[0] == 400
        assert b"/placement/racks" in (await node.get("/nothing"))[1]


# -- lags of a node


@looped
async def test_lags_are_of_what_this_node_holds(tmp_path: Path) -> None:
    """D27: nothing lacks after a write here; a cache that is empty lacks all, until it is read."""
    async with RackedNode(tmp_path) as node, node.connect() as peer:
        await create(node, "t")
        for number in range(5):
            assert (await put(peer, "t", b"%d" % number)).error_code == 0

        async def lags() -> tuple[float, float]:
            scrape = await node.scrape()
            return (value(scrape, "kafka_broker_diskless_coordinator_lag", topic="t", partition=0),
                    value(scrape, "kafka_broker_diskless_cache_build_lag", topic="t", partition=0))

        assert await lags() == (0, 0)
        diskless = node.node.diskless
        assert diskless is not None
        diskless.reader._cache.clear()
        assert await lags() == (0, 5)
        assert (await fetch(peer, "t", 4)).error_code == 0
        assert (await lags())[1] == 0
        assert (await list_offset(peer, "t", -1)).offset == 5


# -- the text, with many partitions


def test_every_number_has_its_line() -> None:
    """D26, D27: names as in the design, each documented and shown."""
    placement = ControllerPlacement(
        PlacementTotals(*range(1, 5)), [RackSample('r"1', 2, 77)], [("t", 3)],
        [[PlacementSample("t", 4, 66, 1, 1, 1)], [PlacementSample("u", 0, 100, 0, 0, 0)]])
    text = "".join(metrics.exposition(make_sources(
        placement=lambda: [placement], diskless_lags=lambda: [DisklessLagSample("t", 4, 5, 6)])))
    scrape = parsed(text)
    for name, family in CONTROLLER_TOTALS.items():
        assert value(scrape, family.name) == getattr(placement.totals, name)
    for name, family in CONTROLLER_RACK.items():
        assert value(scrape, family.name, rack='r"1') == getattr(placement.racks[0], name)
    assert value(scrape, EFFECTIVE_RF.name, topic="t") == 3
    for name, family in CONTROLLER_PLACEMENT.items():
        assert value(scrape, family.name, topic="t", partition=4) == getattr(
            PlacementSample("t", 4, 66, 1, 1, 1), name)
        assert frozenset({("topic", "u"), ("partition", "0")}) in scrape[family.name]
    for number, family in zip((5, 6), DISKLESS_LAG.values(), strict=True):
        assert value(scrape, family.name, topic="t", partition=4) == number
    assert set(CONTROLLER_TOTALS) == set(PlacementTotals._fields)
    names = {name.removeprefix(CONTROLLER) for name in scrape if name.startswith(CONTROLLER)}
    assert names >= {
        "effective_rf", "rack_coverage", "rack_state", "rack_degraded_since_ms",
        "reassignment_backlog", "placement_state", "placement_drift", "exceptions"}


@looped
async def test_many_partitions_are_described_in_small_steps(tmp_path: Path) -> None:
    """D26, K9: 10,000 partitions: every piece of a scrape is small, and equal ones cost a look."""
    async with RackedNode(tmp_path, diskless_managed_rf_auto_reconcile="false") as node:
        await node.join(2, "r2")
        for number in range(5):
            await node.create_diskless(f"t{number}", 2000)
        await node.move("t3", 1234, 1)
        placements = Placements(node.node.broker)
        topics = node.node.broker.cluster.state.diskless_topics()
        pages = list(placement_pages(placements, topics))
        assert max(map(len, pages)) <= PIECE_LINES_MAX
        assert len(placements._known) <= 5  # pairs of replicas and leader
        found = [each for page in pages for each in page]
        assert len({(each.topic, each.partition) for each in found}) == 10_000
        assert (found[0].topic, found[0].partition, found[0].placement_drift) == ("t3", 1234, 1)
        few = [each for page in placement_pages(placements, topics, 3) for each in page]
        assert [(each.topic, each.partition) for each in few] == [
            ("t3", 1234), ("t0", 0), ("t0", 1)]  # what is wrong is never left out
        assert PARTITIONS_MAX >= 10_000
        placement = ControllerPlacement(PlacementTotals(0, 0, 0, 0), [], [], pages)
        pieces = list(metrics.exposition(make_sources(placement=lambda: [placement])))
        assert max(piece.count("\n") for piece in pieces) <= PIECE_LINES_MAX + 100


@pytest.mark.parametrize(("names", "states"), [
    (PLACEMENT_STATES, PlacementState), (RACK_STATES, RackState)])
def test_clients_know_the_names_of_states(names: tuple[str, ...], states: Any) -> None:
    """D28: the client's names are the controller's, by number."""
    assert [name.upper() for name in names] == [state.name for state in states]
    assert [state.value for state in states] == list(range(len(names)))

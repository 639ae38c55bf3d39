"""`quipu placement`, and `quipu topic describe` of diskless topics, with a node in this process."""

import asyncio
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from quipu.cli.cluster import connect
from quipu.cli.main import main
from quipu.client.admin.placement import describe_placement
from tests.broker.diskless.parts import until
from tests.cli.fake_nodes import Fake, listening
from tests.harness.racked import RackedNode
from tests.looped import looped


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def words(self) -> list[list[str]]:
        """The words of each line of a table."""
        return [line.split() for line in self.out.splitlines()]

    @property
    def objects(self) -> list[Any]:
        """Lines of JSON."""
        return [json.loads(line) for line in self.out.splitlines()]


class Rig(NamedTuple):
    """The command line in a thread of this process, and the node that it talks to."""

    node: RackedNode
    capsys: pytest.CaptureFixture[str]

    async def quipu(self, *words: str) -> Done:
        host, port = self.node.address
        code = await asyncio.to_thread(main, [*words, "--bootstrap", f"{host}:{port}"])
        return Done(code, *self.capsys.readouterr())


@looped
async def test_show_names_racks_coverage_and_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """D28: every column, in every state; topics by name, or those that are named."""
    async with RackedNode(tmp_path) as node:
        rig = Rig(node, capsys)
        assert await rig.quipu("placement", "show") == (
            0, "", ("no diskless topics yet; create one with "
                    "`quipu topic create NAME --config diskless.enable=true`\n"))
        await node.join(2, "r2")
        await node.create_diskless("t")
        await node.create_diskless("a", 2)
        await node.create("classic")
        shown = await rig.quipu("placement", "show", "t")
        assert shown.words == [
            ["TOPIC", "PARTITION", "LEADER", "REPLICAS", "TARGET", "RACKS", "ASSIGNED", "RACKS",
             "COVERAGE", "STATE", "EXCEPTIONS"],
            ["t", "0", "1", "1,2", "r1,r2", "r1,r2", "100%", "steady", "-"]]
        every = await rig.quipu("placement", "show")
        assert [words[:2] for words in every.words[1:]] == [["a", "0"], ["a", "1"], ["t", "0"]]
        await node.leave(2)
        (row,) = (await rig.quipu("placement", "show", "t", "--json")).objects
        assert row == {
            "topic": "t", "partition": 0, "leader": 1, "replicas": [1, 2],
            "target_racks": ["r1", "r2"], "assigned_racks": ["r1", "r2"], "rack_coverage": 50,
            "placement_state": "steady", "placement_drift": False,
            "exceptions": ["missingRackCapacity"]}
        assert row in (await node.page("/placement"))["partitions"]


@looped
async def test_drift_shows_what_an_operator_moved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """D28: only partitions with drift; a sentence if there are none, and no error."""
    async with RackedNode(tmp_path, diskless_managed_rf_auto_reconcile="false") as node:
        rig = Rig(node, capsys)
        assert await rig.quipu("placement", "drift") == (
            0, "", "no drift: there are no diskless partitions\n")
        await node.join(2, "r2")
        await node.create_diskless("t", 3)
        assert await rig.quipu("placement", "drift") == (
            0, "", "no drift: 3 diskless partitions are as they should be\n")
        assert await rig.quipu("placement", "drift", "--json") == (0, "", "")
        await node.move("t", 1, 2)
        drifted = await rig.quipu("placement", "drift")
        assert (drifted.code, drifted.words[1:]) == (0, [
            ["t", "1", "2", "2", "r1,r2", "r2", "50%", "frozen", "-"]])
        await until(lambda: node.node.broker.cluster.reconciliation.backlog == 1)
        title = (await rig.quipu("placement", "racks")).out.splitlines()[0]
        assert title == ("effective RF 2  backlog 1 partition  threshold 300,000 ms  "
                         "auto-reconcile off")


@looped
async def test_racks_shows_states_and_brokers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """D28: the rack, its state, since when, its brokers and those that are up."""
    async with RackedNode(tmp_path) as node:
        rig = Rig(node, capsys)
        for node_id, rack in ((2, "r2"), (3, "r2"), (4, None)):
            await node.join(node_id, rack)
        await node.leave(3)
        await node.leave(4)
        title, *table = (await rig.quipu("placement", "racks")).words
        assert title[:3] == ["effective", "RF", "3"]
        since = table[3][2:4]
        assert table == [
            ["RACK", "STATE", "SINCE", "BROKERS", "UP"],
            ["r1", "HEALTHY", "-", "1", "1"],
            ["r2", "HEALTHY", "-", "2,3", "2"],
            ["unknown", "DEGRADED", *since, "4", "-"]]
        assert since[1].endswith("Z")
        (found,) = (await rig.quipu("placement", "racks", "--json")).objects
        page = await node.page("/placement/racks")
        assert found["racks"] == page["racks"]
        assert found["effective_rf"] == page["effective_rf"] == 3
        assert found["controller"] == 1


@looped
async def test_a_diskless_topic_is_described_with_its_placement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """D28: is_diskless, the effective RF, and the columns of its placement."""
    async with RackedNode(tmp_path) as node:
        rig = Rig(node, capsys)
        await node.join(2, "r2")
        await node.create_diskless("t")
        await node.create("classic")
        await node.leave(2)  # so that this node leads, and can be asked for offsets
        described = await rig.quipu("topic", "describe", "t")
        title, head, row = described.out.splitlines()[:3]
        assert title.endswith("  diskless  effective RF 2")
        assert head.endswith("TARGET RACKS  ASSIGNED RACKS  COVERAGE  STATE   EXCEPTIONS")
        assert row.split()[-5:] == ["r1,r2", "r1,r2", "50%", "steady", "missingRackCapacity"]
        (topic,) = (await rig.quipu("topic", "describe", "t", "--json")).objects
        assert (topic["is_diskless"], topic["effective_rf"]) == (True, 2)
        assert topic["partitions"][0]["rack_coverage"] == 50
        (other,) = (await rig.quipu("topic", "describe", "classic", "--json")).objects
        assert other["is_diskless"] is False
        assert "effective_rf" not in other
        assert "COVERAGE" not in (await rig.quipu("topic", "describe", "classic")).out


@looped
async def test_wrong_names_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """D28, K9: what is wrong, and what to do."""
    async with RackedNode(tmp_path) as node:
        rig = Rig(node, capsys)
        await node.create("classic")
        await node.create_diskless("orders")
        assert (await rig.quipu("placement", "show", "ordres")).err == (
            "quipu: there is no topic ordres; did you mean orders?\n")
        refused = await rig.quipu("placement", "drift", "classic")
        assert (refused.code, refused.out) == (1, "")
        assert "topic classic is not diskless" in refused.err


@looped
async def test_placements_are_read_page_by_page(tmp_path: Path) -> None:
    """D28, K12: whatever the size of a page, all partitions are found, each once and in order."""
    async with RackedNode(tmp_path) as node:
        for name, size in (("b", 3), ("a", 2), ("c", 1)):
            await node.create_diskless(name, size)
        await node.create("classic", 2)

        def read(page: int, *names: str) -> list[tuple[str, int]]:
            host, port = node.address
            with connect(f"{host}:{port}") as cluster:
                found = describe_placement(cluster, names, page_partitions=page)
            return [(part.topic, part.partition)
                    for topic in found.values() for part in topic.partitions]

        every = [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]
        for page in (1, 2, 3, 100):
            assert await asyncio.to_thread(read, page) == every
        assert await asyncio.to_thread(read, 2, "b", "classic", "nothing") == every[2:5]


def test_a_broker_without_these_requests_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """D28, K9: an older node, or another Kafka."""
    with listening(Fake()) as address:
        for words in (["placement", "racks"], ["placement", "show"]):
            assert main([*words, "--bootstrap", address]) == 1
            assert "it is another Kafka broker, or an older Quipu" in capsys.readouterr().err


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    """K9: each command shows how it is used."""
    for command in ("show", "drift", "racks"):
        assert main(["placement", command, "--help"]) == 0
        assert f"\n  quipu placement {command}\n" in capsys.readouterr().out

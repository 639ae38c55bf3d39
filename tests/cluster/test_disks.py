"""A chain one of whose disks fails: it goes on without that node, which comes back when it can.

One log that fails is another matter: see test_failed_logs.py.
"""

import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.cluster.test_failures import assert_kept
from tests.cluster.traffic import traffic
from tests.harness.cluster import RunningCluster

PROGRAM = Path(__file__).parents[1] / "harness" / "faulty.py"

pytestmark = pytest.mark.xdist_group("cluster-faults")


def asked(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.timeout(180)
def test_a_chain_goes_on_without_a_node_whose_disk_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V10, V16, V21: the middle node, then the head; each says what is wrong, and is back after
    its disk works and it is restarted.
    """
    monkeypatch.setenv("FAULTY_LOGS", "t-1.,__node-0")
    cluster = RunningCluster(tmp_path)
    for name, node in cluster.nodes.items():
        node.program = [str(PROGRAM)]
        node.environment = {"FAULTY_WHILE": str(tmp_path / f"{name}.fails")}
    with cluster:
        cluster.create_topic("t", partitions=2, min_insync_replicas="2")
        with traffic(cluster, "t") as running:
            for place in (1, 0):
                running.await_progress()
                victim = list(cluster.states("a"))[place]
                fails = tmp_path / f"{victim}.fails"
                fails.touch()
                cluster.await_serving("a", 2)
                assert cluster.states("a")[victim] == "offline"
                running.await_progress(seconds=10, count=300)
                code, why = asked(cluster[victim].http + "/health/ready")
                assert code == 503
                assert "fenced at its own request" in why
                assert "__node-0" in why
                assert "quipu_stepped_back 1" in asked(cluster[victim].http + "/metrics")[1]
                assert "ERROR" in cluster[victim].log_text()
                fails.unlink()
                cluster[victim].restart()
                cluster.await_serving("a")
            running.await_progress()
        assert_kept(cluster, running, "t")

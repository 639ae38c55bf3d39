"""One chain of three: any node may be killed or paused at any time, and nothing is lost.

CLUSTER_SECONDS and CLUSTER_SEED let `make soak` run longer and elsewhere.
"""

import itertools
import os
import random
import shutil
import time
from pathlib import Path

import pytest

from tests.cluster.standstill import SESSION_SECONDS, standstill
from tests.cluster.traffic import Traffic, traffic
from tests.harness.cluster import RunningCluster

SECONDS = float(os.environ.get("CLUSTER_SECONDS", "60"))
SEED = int(os.environ.get("CLUSTER_SEED", "3"))
SMALL_SEGMENTS = "65536"  # so that rolls happen too
STOP_SECONDS_MAX = 2.0  # for one node, whatever the others do
BUSY_SECONDS = 2.5  # that a busy machine may add to what is promised; the print tells the truth

pytestmark = pytest.mark.xdist_group("cluster-faults")


def assert_kept(cluster: RunningCluster, done: Traffic, topic: str, chain: str = "a") -> None:
    """The history has no anomaly, and all replicas are the same bytes.

    They are compared as they lie when all nodes are killed at once: nodes that stop one after the
    other begin new epochs in what is left of the chain.
    """
    cluster.await_serving(chain)
    anomalies = done.anomalies()
    assert anomalies == [], f"seed {SEED}: {len(anomalies)}: {anomalies[:5]}{cluster.logs()}"
    cluster.kill()
    assert cluster.differences(chain, [topic]) == ""


@pytest.mark.timeout(SECONDS + 180)
def test_nothing_is_lost_while_nodes_are_killed_paused_and_restarted(tmp_path: Path) -> None:
    """V10, V13, V15, V16, V21, V22: head, middle and tail in turn, one at a time, acks=all."""
    chance = random.Random(SEED)
    with RunningCluster(tmp_path) as cluster:
        cluster.create_topic("t", partitions=2,
                             segment_bytes=SMALL_SEGMENTS)
        with traffic(cluster, "t", SEED) as running:
            deadline = time.monotonic() + SECONDS
            faults = 0
            while time.monotonic() < deadline:
                members = list(cluster.states("a"))  # head first, as it is now
                victim = cluster[members[faults % 3]]
                if chance.random() < 0.6:
                    victim.kill()
                    time.sleep(chance.uniform(0, 2 * SESSION_SECONDS))
                    victim.start()
                else:
                    victim.pause()
                    time.sleep(chance.uniform(0, 2 * SESSION_SECONDS))
                    victim.resume()
                faults += 1
                cluster.await_serving("a")
                running.await_progress()
        print(f"{running.load.acknowledged} acknowledged over {faults} faults")
        assert faults >= SECONDS // 15
        assert_kept(cluster, running, "t")


@pytest.mark.timeout(300)
def test_a_chain_that_was_killed_as_a_whole_comes_back_in_any_order(tmp_path: Path) -> None:
    """V14: all three killed at once under load and started in every order."""
    with RunningCluster(tmp_path) as cluster:
        cluster.create_topic("t", partitions=2, segment_bytes=SMALL_SEGMENTS)
        with traffic(cluster, "t") as running:
            for order in itertools.permutations(cluster.chains["a"]):
                running.await_progress()
                cluster.kill()
                for name in order:
                    cluster[name].launch()
                    time.sleep(0.3)
                for name in order:
                    cluster[name].await_ready()
                cluster.await_serving("a")
        assert_kept(cluster, running, "t")


@pytest.mark.timeout(180)
def test_a_node_whose_disk_was_emptied_rejoins_and_a_fourth_extends_the_chain(
    tmp_path: Path,
) -> None:
    """V7, V16: an empty node catches up and ends identical; reads move to a new tail."""
    with RunningCluster(tmp_path) as cluster:
        cluster.create_topic("t", partitions=2,
                             segment_bytes=SMALL_SEGMENTS)
        with traffic(cluster, "t") as running:
            running.await_progress(count=500)
            cluster["a-1"].kill()
            shutil.rmtree(cluster["a-1"].directory)
            cluster["a-1"].start()
            cluster.await_serving("a")
            cluster.add("a-3").start()
            cluster.quipu("chain", "extend", "a", "a-3")
            cluster.chains["a"].append("a-3")
            cluster.await_serving("a")
            assert list(cluster.states("a"))[-1] == "a-3"
            running.await_progress(count=200)
        assert_kept(cluster, running, "t")


@pytest.mark.timeout(120)
def test_writes_go_on_without_a_node_only_where_that_is_allowed(tmp_path: Path) -> None:
    """V5, V21: by default writes resume within the detection time plus a second, also if it is the
    controller that died; with min.insync.replicas=0 they wait for the node, and resume by
    themselves.
    """
    with RunningCluster(tmp_path) as cluster:
        cluster.create_topic("two", partitions=2)
        cluster.create_topic("all", partitions=2, min_insync_replicas="0")
        with traffic(cluster, "two") as two, traffic(cluster, "all", 2) as every:
            controller = cluster.controller()
            for victim in (controller, next(name for name in cluster.chains["a"]
                                            if name != controller)):
                two.await_progress()
                every.await_progress()
                seconds = standstill(cluster, two, victim)
                print(f"resumed after {seconds:.2f} s, detection {SESSION_SECONDS} s")
                assert seconds < SESSION_SECONDS + 1.0 + BUSY_SECONDS, cluster.logs()
                before, in_two = every.load.acknowledged, two.load.acknowledged
                time.sleep(2.0)
                assert every.load.acknowledged == before
                assert two.load.acknowledged > in_two
                cluster[victim].start()
                cluster.await_serving("a")
                every.await_progress()
        assert_kept(cluster, two, "two")


@pytest.mark.timeout(120)
def test_a_rolling_restart_costs_clients_nothing_but_retries(tmp_path: Path) -> None:
    """K10: every node is stopped in order and started again under load; the producer and the
    reader see no error at all.
    """
    with RunningCluster(tmp_path) as cluster:
        cluster.create_topic("t", partitions=2)
        with traffic(cluster, "t") as running:
            for name in cluster.chains["a"]:
                running.await_progress()
                cluster[name].restart()
                cluster.await_serving("a")
            running.await_progress()
        assert_kept(cluster, running, "t")


@pytest.mark.timeout(120)
def test_a_cluster_stops_node_by_node_in_a_few_seconds(tmp_path: Path) -> None:
    """K10: the first stops in a healthy cluster, the last without a quorum; clients are there."""
    with RunningCluster(tmp_path) as cluster:
        cluster.create_topic("t", partitions=2, min_insync_replicas="1")
        with traffic(cluster, "t") as running:
            running.await_progress()
            took = {}
            for name in [cluster.controller(), *cluster.chains["a"]]:
                if cluster[name].runs:
                    started = time.monotonic()
                    assert cluster[name].stop() == 0
                    took[name] = time.monotonic() - started
            print({name: round(seconds, 2) for name, seconds in took.items()})
            assert max(took.values()) < STOP_SECONDS_MAX, f"{took}{cluster.logs()}"
            cluster.launch(cluster.nodes)
            cluster.await_serving("a")
            running.await_progress()
        assert_kept(cluster, running, "t")

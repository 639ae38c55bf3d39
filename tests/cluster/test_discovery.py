"""Nodes without configured addresses of others: they find each other, and nodes added later."""

from pathlib import Path

import pytest

from tests.cluster.test_failures import assert_kept
from tests.cluster.traffic import traffic
from tests.harness.cluster import RunningCluster
from tests.harness.names import Records, name_server_beside
from tests.harness.ports import hold_port

SERVICE = "_peer._tcp.quipu."

pytestmark = pytest.mark.xdist_group("cluster")


def found_by(cluster: RunningCluster, name: str, **discovery: str) -> None:
    """Settings that give a node the voters' ids, but no addresses."""
    settings = {key.replace("_", "."): value for key, value in discovery.items()}
    cluster[name].settings.update({
        "controller.quorum.voters": "1,2,3", "peer.discovery.interval.ms": "200", **settings})


def peer_port(cluster: RunningCluster, name: str) -> str:
    return cluster[name].settings["peer.listener"].rpartition(":")[2]


@pytest.mark.timeout(120)
def test_nodes_find_each_other_by_a_list_and_a_chain_is_extended(tmp_path: Path) -> None:
    """V5, V7: a fourth node, which is not a voter and in no node's list, joins."""
    cluster = RunningCluster(tmp_path)
    where = "static:" + ",".join(
        f"127.0.0.1:{peer_port(cluster, name)}" for name in cluster.chains["a"])
    for name in cluster.nodes:
        found_by(cluster, name, peer_discovery=where)
    with cluster:
        cluster.create_topic("t", partitions=2, min_insync_replicas="2")
        with traffic(cluster, "t") as running:
            running.await_progress()
            extend(cluster, peer_discovery=where)
            running.await_progress(count=200)
        assert_kept(cluster, running, "t")


@pytest.mark.timeout(120)
def test_nodes_find_each_other_in_dns_also_after_one_has_moved(tmp_path: Path) -> None:
    """V5, V7, V16: by SRV records; a voter comes back at another address, a fourth node joins."""
    cluster = RunningCluster(tmp_path)
    records: Records = {}
    with name_server_beside(records) as nameserver:
        discovery = {"peer_discovery": f"srv:{SERVICE}",
                     "peer_discovery_nameserver": str(nameserver)}
        for name in cluster.nodes:
            found_by(cluster, name, **discovery)
        publish(cluster, records)
        with cluster:
            cluster.create_topic("t", partitions=2, min_insync_replicas="2")
            with traffic(cluster, "t") as running:
                running.await_progress()
                cluster["a-1"].kill()
                address = f"127.0.0.1:{hold_port(cluster)}"
                cluster["a-1"].settings["peer.listener"] = address
                cluster["a-1"].settings["advertised.peer.listener"] = address
                publish(cluster, records)
                cluster["a-1"].start()
                cluster.await_serving("a")
                extend(cluster, **discovery)
                running.await_progress(count=200)
            assert_kept(cluster, running, "t")


def publish(cluster: RunningCluster, records: Records) -> None:
    """Say in DNS where the voters are."""
    names = cluster.chains["a"][:3]
    records[SERVICE, "SRV"] = [
        f"0 1 {peer_port(cluster, name)} {name}.quipu." for name in names]
    records.update({(f"{name}.quipu.", "A"): ["127.0.0.1"] for name in names})


def extend(cluster: RunningCluster, **discovery: str) -> None:
    """A fourth node, at the end of the chain."""
    cluster.add("a-3")
    found_by(cluster, "a-3", **discovery)
    cluster["a-3"].start()
    cluster.quipu("chain", "extend", "a", "a-3")
    cluster.chains["a"].append("a-3")
    cluster.await_serving("a")
    assert list(cluster.states("a"))[-1] == "a-3"

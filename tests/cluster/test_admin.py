"""Stock tools against a cluster: the metadata that they get, and the operations that they use."""

import json
import time
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient

from quipu.model.errors import Code
from quipu.wire.messages.k64_unregister_broker import UnregisterBrokerRequest
from tests.harness.cluster import RunningCluster
from tests.harness.command import run_quipu
from tests.harness.raw import RawConnection

AT_ONCE_SECONDS = 10.0  # to start the command on a busy machine; it would wait for 30 s and more
pytestmark = pytest.mark.xdist_group("cluster")


@pytest.mark.timeout(180)
def test_stock_tools_see_and_steer_a_cluster(tmp_path: Path) -> None:
    """K6, V2, V3: nodes with racks, the quorum, leaders that are heads, an election back to the
    first node, and a node that is let go.
    """
    with RunningCluster(tmp_path, racks=("x", "y", "z")) as cluster:
        cluster.create_topic("t", partitions=2, min_insync_replicas="2")
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        nodes = {node.id: node.rack for node in admin.describe_cluster().result(10).nodes}
        assert nodes == {1: "x", 2: "y", 3: "z"}
        shown = admin.list_topics("t", timeout=10).topics["t"].partitions[0]
        assert (shown.leader, shown.replicas, shown.isrs) == (1, [1, 2, 3], [1, 2, 3])

        other = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
        quorum = other.describe_metadata_quorum()
        told = json.dumps(quorum)
        assert all(f'"replica_id": {node}' in told for node in nodes), told
        other.close()

        cluster["a-0"].restart()
        cluster.await_serving("a")
        assert list(cluster.states("a")) == ["a-1", "a-2", "a-0"]
        elected = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition("t", 0)]).result(20)
        assert all(error is None for error in elected.values()), elected
        for _ in cluster.until("the first node leads again"):
            if list(cluster.states("a")) == ["a-0", "a-1", "a-2"]:
                break
        cluster.await_serving("a")

        with RawConnection("127.0.0.1", cluster["a-1"].port) as raw:
            refused = raw.ask(UnregisterBrokerRequest(broker_id=2), 0)
            assert refused.error_code != Code.NONE  # a member of a chain stays known


@pytest.mark.timeout(120)
def test_a_node_that_is_not_up_is_refused_as_a_voter_at_once(tmp_path: Path) -> None:
    """K6: nobody waits half a minute for a node that was killed, or was never there; one that is
    up becomes a voter.
    """
    with RunningCluster(tmp_path) as cluster:
        cluster.add("a-3").start()
        cluster["a-3"].kill()
        admin = AdminClient({"bootstrap.servers": cluster["a-0"].bootstrap})
        for _ in cluster.until("the controller has noticed"):
            if 4 not in admin.list_topics(timeout=10).brokers:
                break
        begun = time.monotonic()
        refused = run_quipu("quorum", "add", "4", "--bootstrap", cluster.bootstrap)
        assert (refused.code, "node 4 is not up" in refused.err) == (1, True), refused
        assert time.monotonic() - begun < AT_ONCE_SECONDS
        cluster["a-3"].start()
        cluster.quipu("quorum", "add", "4")
        assert '"id": 4, "role": "voter"' in cluster.quipu("quorum", "list", "--json")

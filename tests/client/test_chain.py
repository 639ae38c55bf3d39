"""Reading from a real chain of three: from its tail, and on when that dies."""

from pathlib import Path

import pytest
from confluent_kafka import Producer

from quipu.client.fetch import fetch
from quipu.client.ranges import Range
from tests.client.test_cluster import cluster_at
from tests.client.test_fetch import values
from tests.harness.cluster import RunningCluster

COUNT = 300


@pytest.mark.timeout(240)  # three nodes on a machine that is busy
def test_a_chain_is_read_at_its_tail(tmp_path: Path) -> None:
    """I18: the leader refers to the tail, which dies while a range is read."""
    with RunningCluster(tmp_path, nodes=3) as running:
        running.create_topic("t")
        running.await_serving("a")
        producer = Producer({
            "bootstrap.servers": running.bootstrap, "linger.ms": 0, "log_level": 0})
        for number in range(COUNT):
            producer.produce("t", b"%d" % number, partition=0)
            if number % 20 == 19:
                assert producer.flush(60) == 0
        expected = [b"%d" % number for number in range(COUNT)]
        with cluster_at(running.bootstrap, max_partition_fetch_bytes="300") as client:
            (part,) = client.partitions(["t"])
            assert client.latest([part]) == {part: COUNT}
            assert values(fetch(client, [Range("t", 0, 0, COUNT)])) == expected
            tail = list(running.states("a"))[-1]
            assert running[tail].port in {address.port for address in client._idle}
            chunks = fetch(client, [Range("t", 0, 0, COUNT)])
            got = [next(chunks)]
            running[tail].kill()
            got += chunks
            assert values(iter(got)) == expected

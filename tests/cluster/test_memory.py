"""Memory of a chain under load: what a slow node has not taken waits in the log, nowhere else."""

import threading
import time
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import Producer

from tests.harness.cluster import RunningCluster
from tests.harness.node import RunningNode

MIB = 1 << 20
BATCH_SIZE = 1_000_000
COUNT = 200
PAUSE_SECONDS = 1.0
# What a node needs by itself; what may be on its way to the next node (a window, PEER_BACKLOG_MAX
# at most), and on its way in; requests that have arrived in part.  Far less than what is sent.
ANONYMOUS_MAX = 64 * MIB

pytestmark = pytest.mark.xdist_group("cluster")


def anonymous_size(node: RunningNode) -> int:
    """Memory that is the node's own: resident, without files that it maps."""
    for line in Path(f"/proc/{node.pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no RssAnon")


class Watch:
    """The most memory that each node has had, looked at again and again."""

    def __init__(self, cluster: RunningCluster) -> None:
        self._nodes = dict(cluster.nodes)
        self.most = dict.fromkeys(self._nodes, 0)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        while not self._ended.wait(0.005):
            for name, node in self._nodes.items():
                self.most[name] = max(self.most[name], anonymous_size(node))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("acks", ["1", "all"])
def test_a_slow_node_fills_nobodys_memory(tmp_path: Path, acks: str) -> None:
    """V9, V10: 200 MB pass a chain whose last node is paused for a while; with acks=1 the head
    accepts all of it meanwhile, with acks=all its clients wait.
    """
    settings = {"broker.session.timeout.ms": "60000"}  # a pause is no death here
    with RunningCluster(tmp_path, settings=settings) as cluster:
        cluster.create_topic("t", max_message_bytes="2000000")
        *_, tail = cluster.nodes.values()
        producer = Producer({
            "bootstrap.servers": cluster.bootstrap, "acks": acks, "linger.ms": 0,
            "message.max.bytes": 2_000_000, "queue.buffering.max.kbytes": 400_000,
            "message.timeout.ms": 120_000})
        failed: list[object] = []

        def delivered(error: object, _message: object) -> None:
            if error is not None:
                failed.append(error)

        with Watch(cluster) as watch:
            for number in range(COUNT):
                if number == COUNT // 10:
                    producer.poll(0.2)
                    tail.pause()
                producer.produce("t", bytes([number]) * BATCH_SIZE, on_delivery=delivered)
            producer.flush(PAUSE_SECONDS if acks == "all" else 60)
            waiting = len(producer)
            tail.resume()
            assert producer.flush(120) == 0
            await_same_size(cluster)
        assert not failed, failed[:3]
        assert (waiting > 0) == (acks == "all"), waiting
        print({name: f"{size / MIB:.0f} MiB" for name, size in watch.most.items()})
        for name, size in watch.most.items():
            assert 10 * MIB < size < ANONYMOUS_MAX, f"{name}: {size / MIB:.0f} MiB"
        cluster.kill()
        assert cluster.differences("a", ["t"]) == ""


def await_same_size(cluster: RunningCluster) -> None:
    """Wait until every node has written everything."""
    for _ in cluster.until("every node has all of it"):
        sizes = {sum(file.stat().st_size for file in node.directory.glob("t-0.*/*.log"))
                 for node in cluster.nodes.values()}
        if len(sizes) == 1 and sizes.pop() > COUNT * BATCH_SIZE:
            time.sleep(0.2)
            return

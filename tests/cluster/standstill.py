"""Measures how long writes wait when a node fails: each role of a chain, controller or not.

    python -m tests.cluster.standstill [rounds]
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.cluster.traffic import Traffic, traffic
from tests.harness.cluster import QUICK, RunningCluster

SESSION_SECONDS = int(QUICK["broker.session.timeout.ms"]) / 1000
PARTS = ("head", "middle", "tail")
SETTLE_SECONDS_MAX = 20.0


def standstill(cluster: RunningCluster, running: Traffic, victim: str) -> float:
    """Kill `victim`, and give the longest time without an acknowledgement in any partition."""
    running.await_progress()
    killed = time.monotonic()
    cluster[victim].kill()
    running.await_progress(SETTLE_SECONDS_MAX, count=200)
    time.sleep(1.0)
    return running.load.longest_pause(since=killed)


def measure(cluster: RunningCluster, running: Traffic) -> Iterator[tuple[str, bool, float]]:
    """Every part of the chain once: which part, whether it was the controller, how long."""
    for place, part in enumerate(PARTS):
        victim = list(cluster.states("a"))[place]
        was_controller = cluster.controller() == victim
        yield part, was_controller, standstill(cluster, running, victim)
        cluster[victim].start()
        cluster.await_serving("a")
    while True:  # the controller, wherever it is
        victim = cluster.controller()
        part = PARTS[list(cluster.states("a")).index(victim)]
        yield part, True, standstill(cluster, running, victim)
        cluster[victim].start()
        cluster.await_serving("a")


def main(rounds: int) -> None:
    with (tempfile.TemporaryDirectory() as directory,
          RunningCluster(Path(directory)) as cluster):
        cluster.create_topic("t", partitions=2)
        with traffic(cluster, "t") as running:
            for _, (part, was_controller, seconds) in zip(
                    range(rounds), measure(cluster, running), strict=False):
                who = f"{part}, {'controller' if was_controller else 'no controller'}"
                print(f"{who:24} {seconds:.2f} s  (session {SESSION_SECONDS} s)", flush=True)
        assert running.anomalies() == []


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 6)

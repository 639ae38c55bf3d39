"""A cluster of processes under faults of every kind, and idempotent stock producers that must not
notice more than a wait: exactly once, in order per partition, nothing acknowledged lost.

    python -m tests.soak.cluster_faults --seconds 300 --seed 7 --nodes 3

    kill       SIGKILL, and a start after a while
    pause      SIGSTOP for a while
    cut        links between hosts: one way, both ways, or one host from all others; in network
               namespaces where root may make them, through a proxy on loopback elsewhere
    full       no room on the disk of one node, until there is again (needs root: a tmpfs each)
    fail       writes and syncs of one node's partition come back with an error of the device for a
               while; then the node is restarted, or goes on and mends the partition by itself
    restore    the node is killed and its disk replaced by a copy that is some faults old

One node at a time has a fault; the next comes when the chain is whole again and the producer has
gone on.  Every fault is printed, the totals at the end; an anomaly ends the run with exit code 1.
"""

import argparse
import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.cluster.traffic import Traffic, traffic
from tests.harness.cluster import RunningCluster
from tests.harness.hosts import Hosts, can_make_hosts
from tests.harness.node import REPOSITORY

TOPIC = "t"
DISK_SIZE = "256m"
SMALL_SEGMENTS = str(1 << 16)
LARGE_SEGMENTS = str(1 << 30)
FAULT_SECONDS_MAX = 4.0
WHOLE_SECONDS_MAX = 90.0
PROGRESS_SECONDS_MAX = 60.0


class Faults:
    """Does terrible things to a cluster, one at a time."""

    def __init__(
        self, cluster: RunningCluster, hosts: Hosts | None, chance: random.Random, *,
        has_own_disks: bool,
    ) -> None:
        self._cluster = cluster
        self._hosts = hosts
        self._chance = chance
        self._copies: dict[str, Path] = {}
        self.done: Counter[str] = Counter()
        self._kinds: list[tuple[str, int, Callable[[str], str]]] = [
            ("kill", 4, self._kill), ("pause", 3, self._pause), ("cut", 4, self._cut),
            ("fail", 2, self._fail), ("restore", 1, self._restore),
        ]
        if has_own_disks:
            self._kinds.append(("full", 2, self._fill))

    def strike(self) -> str:
        """One fault from its start to its end; returns its description."""
        kind, _, fault = self._chance.choices(
            self._kinds, weights=[weight for _, weight, _ in self._kinds])[0]
        members = list(self._cluster.states("a"))
        victim = self._chance.choice([members[0], members[-1], self._chance.choice(members)])
        detail = fault(victim)
        self.done[kind] += 1
        return f"{kind} {victim} (place {members.index(victim) + 1} of {len(members)}) {detail}"

    def _wait(self) -> float:
        seconds = self._chance.choice([0.2, 1.0, FAULT_SECONDS_MAX]) * self._chance.random()
        time.sleep(seconds)
        return seconds

    def _kill(self, name: str) -> str:
        self._cluster[name].kill()
        seconds = self._wait()
        self._cluster[name].start(timeout=WHOLE_SECONDS_MAX)
        return f"for {seconds:.1f} s"

    def _pause(self, name: str) -> str:
        self._cluster[name].pause()
        try:
            seconds = self._wait()
        finally:
            self._cluster[name].resume()
        return f"for {seconds:.1f} s"

    def _cut(self, name: str) -> str:
        places = list(self._cluster.nodes)
        here = places.index(name)
        other = self._chance.choice([place for place in range(len(places)) if place != here])
        way = self._chance.choice(["from all", "both ways", "one way"])
        pairs = {"from all": [(here, each) for each in range(len(places)) if each != here],
                 "both ways": [(here, other)], "one way": [(here, other)]}[way]
        if way != "one way":
            pairs += [(target, source) for source, target in pairs]
        try:
            for source, target in pairs:
                self._cut_one(source, target)
            seconds = self._wait()
        finally:
            self._heal()
        return f"{way} for {seconds:.1f} s"

    def _cut_one(self, source: int, target: int) -> None:
        if self._hosts is not None:
            self._hosts.cut(source, target)
        else:
            names = list(self._cluster.nodes)
            assert self._cluster.proxy is not None
            self._cluster.proxy.cut(self._cluster.node_id(names[source]),
                                    self._cluster.node_id(names[target]))

    def _heal(self) -> None:
        if self._hosts is not None:
            self._hosts.heal()
        elif self._cluster.proxy is not None:
            self._cluster.proxy.heal()

    def _fill(self, name: str) -> str:
        ballast = self._cluster[name].directory.parent / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        try:
            seconds = self._wait()
        finally:
            ballast.unlink()
        return f"for {seconds:.1f} s"

    def _fail(self, name: str) -> str:
        flag = self._cluster.directory / f"{name}.faulty"
        flag.touch()
        try:
            seconds = self._wait()
        finally:
            flag.unlink()
        if self._chance.random() < 0.5:
            return f"for {seconds:.1f} s"
        self._cluster[name].kill()
        self._cluster[name].start(timeout=WHOLE_SECONDS_MAX)
        return f"for {seconds:.1f} s, then restarted"

    def _restore(self, name: str) -> str:
        """The first time the disk is only copied: there is no older one yet."""
        node = self._cluster[name]
        node.kill()
        copy = self._copies.pop(name, None)
        time.sleep(2.0)  # nobody restores a disk faster than a node is missed
        if copy is None:
            self._copies[name] = self._cluster.directory / f"{name}.copy"
            shutil.copytree(node.directory, self._copies[name])
        else:
            shutil.rmtree(node.directory)
            shutil.copytree(copy, node.directory)
            shutil.rmtree(copy)
        node.start(timeout=WHOLE_SECONDS_MAX)
        return "copied" if copy is None else "from a copy"


@contextlib.contextmanager
def disks(directory: Path, names: list[str]) -> Iterator[bool]:
    """A small disk of its own for every node, where root may mount one; yields whether there is."""
    mounted: list[Path] = []
    try:
        for name in names if os.geteuid() == 0 else []:
            place = directory / f"{name}.disk"
            place.mkdir()
            done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_SIZE}", "quipu",
                                   str(place)], capture_output=True, check=False)
            if done.returncode != 0:
                break
            mounted.append(place)
        yield len(mounted) == len(names)
    finally:
        for place in mounted:
            subprocess.run(["umount", "-l", str(place)], check=False)


def run(seconds: float, seed: int, nodes: int) -> list[str]:
    """Strike for so long; what was found, which should be nothing."""
    chance = random.Random(seed)
    names = [f"a-{number}" for number in range(nodes)]
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        hosts = stack.enter_context(Hosts(nodes)) if can_make_hosts() else None
        has_own_disks = stack.enter_context(disks(directory, names))
        cluster = RunningCluster(directory, nodes=nodes, hosts=hosts, proxied=hosts is None)
        for name in names:
            node = cluster[name]
            if has_own_disks:
                node.directory = directory / f"{name}.disk" / "data"
            node.program = [str(REPOSITORY / "tests" / "harness" / "faulty.py")]
            node.environment = {"FAULTY_LOGS": f"{TOPIC}-0.",
                                "FAULTY_WHILE": str(directory / f"{name}.faulty")}
        stack.enter_context(cluster)
        segments = chance.choice([SMALL_SEGMENTS, LARGE_SEGMENTS])
        print(f"cluster of {nodes}, seed {seed}, segments of {segments} bytes, "
              f"{'namespaces' if hosts else 'a proxy'}, "
              f"{'disks of their own' if has_own_disks else 'one disk'}", flush=True)
        cluster.create_topic(TOPIC, partitions=2, segment_bytes=segments)
        faults = Faults(cluster, hosts, chance, has_own_disks=has_own_disks)
        started = time.monotonic()
        with traffic(cluster, TOPIC, seed) as running:
            while time.monotonic() - started < seconds:
                at = time.monotonic() - started
                print(f"  {at:6.1f} s  {faults.strike()}", flush=True)
                recover(cluster, running, len(names))
        found = [f"{anomaly.name}: {anomaly.detail}" for anomaly in running.anomalies()]
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(faults.done.items()))
        print(f"{faults.done.total()} faults ({kinds}); {running.load.acknowledged} records "
              f"acknowledged; {len(found)} anomalies", flush=True)
        if found:
            print(cluster.logs(20_000), file=sys.stderr)
        return found


def recover(cluster: RunningCluster, running: Traffic, nodes: int) -> None:
    """The chain is whole again, and the producer has gone on, within a bound."""
    for _ in cluster.until(f"{nodes} members serve", WHOLE_SECONDS_MAX):
        states = cluster.states("a")
        if sum(state == "serving" for state in states.values()) == nodes and (
                len(cluster.in_sync(TOPIC, 0)) == nodes):
            break
    running.await_progress(PROGRESS_SECONDS_MAX)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", type=int, choices=[3, 5], default=3)
    arguments = parser.parse_args()
    found = run(arguments.seconds, arguments.seed, arguments.nodes)
    for anomaly in found[:20]:
        print(anomaly, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

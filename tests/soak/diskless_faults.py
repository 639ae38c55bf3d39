"""Diskless topics under faults of everything that they need, and stock producers that must not
notice more than a wait: exactly once and in order with sequences, nothing acknowledged lost
without.

    python -m tests.soak.diskless_faults --seconds 300 --seed 7

    kill       SIGKILL of a node, and a start after a while
    restart    SIGTERM of a node, which ends its work, and a start
    pause      SIGSTOP of a node for a while, longer than its session at times
    database   PostgreSQL ends as after a failure, and is started again
    refuse     the store closes every connection
    slow       the store takes its time for every response
    stall      the store takes requests, and neither carries them out nor responds
    lose       the store does what it is asked, and the connection ends before the response
    hold       the store does what it is asked, and the response never comes
    cut        the store ends within the bodies of its responses
    both       a node is killed and started while the store or the database fails

Three nodes, PostgreSQL and an S3 server are processes of their own.  Writers of one partition are
each tied to a node; one writes to several partitions; one has no sequences.  The next fault comes
when every writer has gone on.  Every fault is printed, the totals at the end; an anomaly ends the
run with exit code 1.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.harness.diskless_site import DisklessSite
from tests.harness.s3_server import CREDENTIALS, S3Server
from tests.harness.store_proxy import WireFault
from tests.harness.writers import (
    Follower,
    Writer,
    anomalies,
    await_progress,
    read_topic,
    running,
)

TOPICS = {"one": 1, "several": 4, "plain": 2}  # and how many partitions they have
WAIT_SECONDS_MAX = 4.0
SLOW_SECONDS = 0.4
WIRE_FAULTS = {"refuse": WireFault.REFUSE, "stall": WireFault.STALL,
               "lose": WireFault.LOSE_RESPONSE, "hold": WireFault.HOLD_RESPONSE,
               "cut": WireFault.CUT_BODY}
KINDS = {"kill": 6, "restart": 2, "pause": 2, "database": 3, "both": 3, "slow": 1,
         **dict.fromkeys(WIRE_FAULTS, 1)}


class Faults:
    """Does terrible things to a site, one at a time."""

    def __init__(self, site: DisklessSite, chance: random.Random) -> None:
        self._site = site
        self._chance = chance
        self.done: Counter[str] = Counter()
        self._faults: dict[str, Callable[[float], str]] = {
            "kill": self._kill, "restart": self._restart, "pause": self._pause,
            "database": self._database, "both": self._both, "slow": self._slow}

    def strike(self, kind: str | None = None, *, seconds_max: float = WAIT_SECONDS_MAX) -> str:
        """One fault from its start to its end, any if none is named; returns its description."""
        kind = kind or self._chance.choices(list(KINDS), list(KINDS.values()))[0]
        seconds = self._chance.choice([0.3, 1.0, seconds_max]) * self._chance.random()
        if kind in WIRE_FAULTS:
            detail = self._break_wire(WIRE_FAULTS[kind], seconds)
        else:
            detail = self._faults[kind](seconds)
        self.done[kind] += 1
        return f"{kind} {detail} for {seconds:.1f} s"

    def _kill(self, seconds: float) -> str:
        name = self._chance.choice(list(self._site.cluster.nodes))
        self._site.cluster[name].kill()
        time.sleep(seconds)
        self._site.cluster[name].start()
        return name

    def _restart(self, seconds: float) -> str:
        name = self._chance.choice(list(self._site.cluster.nodes))
        code = self._site.cluster[name].stop()
        assert code == 0, f"{name} stopped with {code}{self._site.cluster.logs()}"
        time.sleep(seconds)
        self._site.cluster[name].start()
        return name

    def _both(self, seconds: float) -> str:
        """The node starts while the fault is there; it serves other topics."""
        fault = self._chance.choice([None, *WIRE_FAULTS.values()])
        if fault is None:
            self._site.postgres.crash()
        else:
            self._site.proxy.break_next(fault)
        try:
            return f"{fault.value if fault else 'no database'}, {self._kill(seconds)}"
        finally:
            if fault is None:
                self._site.postgres.start()
            self._site.proxy.heal()

    def _pause(self, seconds: float) -> str:
        name = self._chance.choice(list(self._site.cluster.nodes))
        self._site.cluster[name].pause()
        try:
            time.sleep(seconds)
        finally:
            self._site.cluster[name].resume()
        return name

    def _database(self, seconds: float) -> str:
        self._site.postgres.crash()
        time.sleep(seconds)
        self._site.postgres.start()
        return "ends"

    def _slow(self, seconds: float) -> str:
        self._site.proxy.delay_seconds = SLOW_SECONDS
        try:
            time.sleep(seconds)
        finally:
            self._site.proxy.delay_seconds = 0.0
        return f"by {SLOW_SECONDS} s"

    def _break_wire(self, fault: WireFault, seconds: float) -> str:
        method = self._chance.choice([b"", b"PUT", b"PUT", b"GET"])
        if fault is WireFault.CUT_BODY:
            method = b"GET"  # no other response has a body that counts
        self._site.proxy.break_next(fault, method)
        try:
            time.sleep(seconds)
        finally:
            self._site.proxy.heal()
        return method.decode() or "everything"


def writers_of(site: DisklessSite, chance: random.Random) -> list[Writer]:
    """Three of one partition, each tied to a node; one of several; one without sequences."""
    def own() -> random.Random:
        return random.Random(chance.getrandbits(32))

    pinned = [Writer(f"at {name}", site.pinned(name), "one", [0], own())
              for name in site.cluster.nodes]
    return [*pinned, Writer("several", site.bootstrap, "several", range(4), own()),
            Writer("plain", site.bootstrap, "plain", range(2), own(), is_idempotent=False)]


def suffer(
    site: DisklessSite, chance: random.Random, strikes: Callable[[Faults, Sequence[Writer]], None]
) -> list[str]:
    """Everything that breaks a promise while `strikes` lets faults happen; should be nothing."""
    for topic, partitions in TOPICS.items():
        site.create_topic(topic, partitions=partitions)
    writers = writers_of(site, chance)
    followers = [Follower(site.bootstrap, topic, count) for topic, count in TOPICS.items()]
    faults = Faults(site, chance)
    with running([*writers, *followers], site.cluster.logs):
        await_progress(writers, site.cluster.logs)
        strikes(faults, writers)
    found: list[str] = []
    for follower in followers:
        topic = follower.topic
        reads = read_topic(site.bootstrap, topic, TOPICS[topic])
        broken = anomalies(topic, writers, [reads, follower.reads])
        found += [f"{topic}: {each.name}: {each.detail}" for each in broken]
        print(f"  {topic}: {len(reads)} records, {len(follower.reads)} of them followed")
    found += [f"{name} has ended" for name, node in site.cluster.nodes.items() if not node.runs]
    code, out = site.diskless("objects")
    if code != 0:
        found.append(f"quipu diskless objects: {out}")
    totals(faults, writers, found)
    return found


def totals(faults: Faults, writers: Sequence[Writer], found: Sequence[str]) -> None:
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(faults.done.items()))
    told = ", ".join(f"{writer.name} {writer.acknowledged}" for writer in writers)
    print(f"{faults.done.total()} faults ({kinds}); acknowledged: {told}; "
          f"{len(found)} anomalies", flush=True)


def run(seconds: float, seed: int) -> list[str]:
    """Strike for so long; what was found, which should be nothing."""
    chance = random.Random(seed)
    os.environ.update(CREDENTIALS)

    with tempfile.TemporaryDirectory() as folder, S3Server() as server, \
            DisklessSite(Path(folder), server) as site:
        print(f"diskless topics on 3 nodes, seed {seed}", flush=True)

        def strikes(faults: Faults, writers: Sequence[Writer]) -> None:
            started = time.monotonic()
            while time.monotonic() - started < seconds:
                at = time.monotonic() - started
                print(f"  {at:6.1f} s  {faults.strike()}", flush=True)
                await_progress(writers, site.cluster.logs)

        found = suffer(site, chance, strikes)
        if found:
            print(site.cluster.logs(20_000), file=sys.stderr)
        return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    found = run(arguments.seconds, arguments.seed)
    for anomaly in found[:20]:
        print(anomaly, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

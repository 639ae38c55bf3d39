"""Topics on chains become diskless under load, while the controller and a broker are killed.

    python -m tests.soak.migration --runs 20 --seed 7

Three nodes, PostgreSQL and an S3 server are processes of their own.  In each run stock idempotent
producers write to every partition of a new topic, and a stock consumer follows it from its
beginning.  Then its migration begins; at some moment the controller's process ends by SIGKILL, at
another that of a broker, and both are started again.  In most runs the store takes no segment until
both were killed, so both are killed in the middle; in the others it is slow, and they may be killed
at the switch, or after it.  In some runs the migration is called off first, and begun again.

Every record that was acknowledged must be there once, in order, at the offset that the producer was
told, and offsets must go on without a gap.  A run that finds anything else ends with exit code 1.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from quipu.client.admin.migration import MigrationState, migrate_topic
from quipu.client.cluster import Cluster
from quipu.client.errors import ClientError
from quipu.client.settings import ClientSettings
from quipu.model.migration import MigrationAction
from tests.harness.diskless_site import DisklessSite
from tests.harness.history import Read
from tests.harness.progress import wait_for
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

PARTITIONS = 3
TIERED = {"remote_storage_enable": "true", "segment_bytes": "65536",
          "min_insync_replicas": "2"}
MOMENTS = ("at once", "copying", "copying", "switching", "later")  # at which a process is killed
HELD_MOMENTS = ("at once", "copying", "later")  # while the store takes nothing
HELD_SHARE = 0.75  # of the runs
LATER_SECONDS_MAX = 1.0
DOWN_SECONDS_MAX = 2.0
STORE_DELAYS = (0.2, 0.6, 0.9)  # seconds for a response of the store, while it copies
BOTH_DOWN_SHARE = 0.5  # of the runs: no controller can be elected for a while
CANCELLED_SHARE = 0.25  # of the runs


class Migration:
    """The migration of one topic of a site, and what happens to it."""

    def __init__(
        self, site: DisklessSite, topic: str, chance: random.Random, *, is_held: bool = False
    ) -> None:
        """`is_held`: the store takes nothing until two processes were killed."""
        self.site, self.topic = site, topic
        self._chance = chance
        self._is_held = is_held
        self.events: list[str] = []
        self._began_at = 0.0
        self._down = 0  # how many nodes are

    def begin(self) -> None:
        if self._is_held:
            self.site.proxy.break_next(WireFault.REFUSE, b"PUT")
        self.ask(MigrationAction.BEGIN)
        self._began_at = time.monotonic()

    def ask(self, action: MigrationAction) -> list[MigrationState]:
        """Ask any node that responds; while there is no controller, again."""
        while True:
            try:
                with Cluster(ClientSettings(
                        bootstrap_servers=self.site.bootstrap, request_timeout_ms=5000,
                        default_api_timeout_ms=10_000)) as cluster:
                    return migrate_topic(cluster, self.topic, action)
            except ClientError as error:
                if action is MigrationAction.CANCEL and "is diskless" in str(error):
                    raise
                time.sleep(0.1)

    def steps(self) -> dict[str, int]:
        """How many partitions are how far."""
        return dict(Counter(state.step for state in self.ask(MigrationAction.DESCRIBE)))

    def note(self, what: str) -> None:
        self.events.append(f"{time.monotonic() - self._began_at:.2f} s: {what}")

    def kill_both(self, names: Sequence[str]) -> None:
        """End the processes of two nodes, each at some moment, and start them again."""
        first, second = self._chance.sample(list(names), 2)
        is_both_down = self._chance.random() < BOTH_DOWN_SHARE
        self._kill(first)
        if not is_both_down:
            self._start(first)
        self._kill(second)
        self.site.proxy.heal()
        for name in [second] if not is_both_down else [first, second]:
            self._start(name)

    def _kill(self, name: str) -> None:
        moment = self._chance.choice(HELD_MOMENTS if self._is_held else MOMENTS)
        if moment == "later":
            time.sleep(LATER_SECONDS_MAX * self._chance.random())
        elif moment != "at once" and not self._down:
            wait_for(lambda: bool({moment, "done"} & self.steps().keys()), pause=0.01,
                     what=lambda: f"{self.topic}: not {moment}{self.site.cluster.logs()}")
        steps = self.steps() if not self._down else "unknown, as no controller is up"
        self.site.cluster[name].kill()
        self._down += 1
        self.note(f"{name} killed at {steps}")

    def _start(self, name: str) -> None:
        time.sleep(DOWN_SECONDS_MAX * self._chance.random())
        self.site.cluster[name].start()
        self._down -= 1
        self.note(f"{name} started at {self.steps()}")

    def await_done(self) -> None:
        wait_for(lambda: self.steps() == {"done": PARTITIONS}, progress=self.steps, pause=0.2,
                 what=lambda: f"{self.ask(MigrationAction.DESCRIBE)}{self.site.cluster.logs()}")
        self.note("done")

    def call_off(self) -> bool:
        """Call it off while it is under way, if it still is; returns whether it was."""
        try:
            self.ask(MigrationAction.CANCEL)
        except ClientError:
            return False
        self.note("called off")
        return True


def writers_of(site: DisklessSite, topic: str, chance: random.Random) -> list[Writer]:
    """One of each partition, and one of all."""
    def own() -> random.Random:
        return random.Random(chance.getrandbits(32))

    return [*(Writer(f"w{each}", site.bootstrap, topic, [each], own())
              for each in range(PARTITIONS)),
            Writer("all", site.bootstrap, topic, range(PARTITIONS), own())]


def migrate_once(site: DisklessSite, topic: str, chance: random.Random) -> list[str]:
    """One run; returns everything that breaks a promise, which should be nothing."""
    site.cluster.await_serving("a")
    site.cluster.create_topic(topic, partitions=PARTITIONS, **TIERED)
    is_held = chance.random() < HELD_SHARE
    migration = Migration(site, topic, chance, is_held=is_held)
    writers = writers_of(site, topic, chance)
    follower = Follower(site.bootstrap, topic, PARTITIONS)
    with running([*writers, follower], site.cluster.logs):
        await_progress(writers, site.cluster.logs, 100)
        controller = site.cluster.controller()
        broker = chance.choice([name for name in site.cluster.nodes if name != controller])
        site.proxy.delay_seconds = 0.0 if is_held else chance.choice(STORE_DELAYS)
        migration.begin()
        if chance.random() < CANCELLED_SHARE and migration.call_off():
            await_progress(writers, site.cluster.logs, 10)
            migration.begin()
        migration.kill_both([controller, broker])
        site.proxy.delay_seconds = 0.0
        migration.await_done()
        await_progress(writers, site.cluster.logs, 100)
        wanted = sum(writer.acknowledged for writer in writers)
        wait_for(lambda: len(follower.reads) >= wanted, progress=lambda: len(follower.reads),
                 what=lambda: f"{len(follower.reads)} of {wanted} followed{site.cluster.logs()}")
    reads = read_topic(site.bootstrap, topic, PARTITIONS)
    found = [f"{topic}: {each.name}: {each.detail}"
             for each in anomalies(topic, writers, [reads, follower.reads])]
    found += gaps(topic, reads)
    acknowledged = sum(writer.acknowledged for writer in writers)
    print(f"{topic}: {acknowledged} acknowledged, {len(reads)} read, {len(follower.reads)} "
          f"followed, {len(found)} anomalies; {'; '.join(migration.events)}", flush=True)
    return found


def gaps(topic: str, reads: Sequence[Read]) -> list[str]:
    """Partitions whose offsets do not begin at 0, or do not go on one by one."""
    found = []
    for partition in range(PARTITIONS):
        offsets = [read.offset for read in reads if read.partition == partition]
        if offsets != list(range(len(offsets))):
            found.append(f"{topic}-{partition}: its offsets are not continuous")
    return found


def run(runs: int, seed: int) -> list[str]:
    """So many runs on one site; what was found, which should be nothing."""
    os.environ.update(CREDENTIALS)
    found: list[str] = []
    with tempfile.TemporaryDirectory() as folder, S3Server() as server, \
            DisklessSite(Path(folder), server, is_tiered=True) as site:
        for number in range(runs):
            found += migrate_once(site, f"t{number}", random.Random(seed * 1000 + number))
        if found:
            print(site.cluster.logs(20_000), file=sys.stderr)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    found = run(arguments.runs, arguments.seed)
    for anomaly in found[:20]:
        print(anomaly, file=sys.stderr)
    print(f"{arguments.runs} runs, {len(found)} anomalies", flush=True)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

"""Well-formed requests with hostile values for every API and version, at a real node, without end.

    python -m tests.soak.hostile_requests --requests 2000000 --seed 7 --seconds 3600
    python -m tests.soak.hostile_requests --requests 200000 --nodes 3
    python -m tests.soak.hostile_requests --replay FINDING

A few processes send (hostile_worker.py) what hostile_values.py makes.  Meanwhile a bystander writes
with acks=all, reads back, commits its offset and requests metadata.  After every RESTART_EVERY
requests the node is killed or, in turns, stopped, and started again: all acknowledged writes of the
bystander must be there.

A finding ends the run with exit code 1:
    * the node's process ends, or writes an error to its log
    * a worker's finding: no response, one that does not decode, a connection closed for no reason
    * the bystander is refused, waits for too long, or misses something
    * memory beyond a bound or growing without end; descriptors that stay
    * no start within START_SECONDS_MAX

The frames without a response are then written to a file, which --replay sends again one by one.
"""

import argparse
import contextlib
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from quipu.launch.process import NodeFailed
from quipu.wire.frame import decode_request
from quipu.wire.messages.k03_metadata import MetadataRequest, MetadataResponse
from quipu.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from quipu.wire.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tests.harness.cluster import RunningCluster
from tests.harness.node import RunningNode
from tests.harness.postgres import PostgresServer
from tests.harness.raw import RawConnection
from tests.hostile.bystander import anonymous_size
from tests.soak.hostile_bystander import Victim
from tests.soak.hostile_values import DISKLESS_TOPICS, TOPICS, VICTIM_GROUP, VICTIM_TOPIC
from tests.soak.hostile_worker import Orders, Report, name_of, work

MIB: Final = 1 << 20
WORKERS: Final = 2
MARK_EVERY: Final = 100_000  # requests between two looks at memory
RESTART_EVERY: Final = 200_000
START_SECONDS_MAX: Final = 20.0
ANONYMOUS_MAX: Final = 400 * MIB
GROWTH_MAX: Final = 120 * MIB  # from one mark to the next, of one process
SOCKETS_MAX: Final = 12  # of a node that nobody talks to: listeners, and the loop's own
PARTITIONS_MAX: Final = 300
SETTINGS: Final = {  # limits that are reached soon, and waits that are short
    "max.partitions": str(PARTITIONS_MAX),
    "fetch.max.bytes": str(MIB // 4),
    "fetch.max.wait.ms": "300",
    "request.max.wait.ms": "3000",
    "group.initial.rebalance.delay.ms": "0",
    "group.max.rebalance.timeout.ms": "1000",
    "group.min.session.timeout.ms": "1",
    "group.max.session.timeout.ms": "2000",
    "group.max.count": "400",
    "group.max.offsets": "2000",
    "offsets.max.count": "20000",
    "max.producer.ids.per.partition": "500",
    "max.incremental.fetch.session.cache.slots": "100",
    "queued.max.request.bytes": str(64 * MIB),
    "queued.max.response.bytes": str(32 * MIB),
    "max.connection.creation.rate": "1000000",
    "diskless.storage.system.enable": "true",
    "diskless.flush.interval.ms": "20",
}
# Lines of the log at level ERROR that are as they should be, and why.
EXPLAINED: Final[dict[str, str]] = {}


class Soak:
    """A node, its bystander, and all that was seen."""

    def __init__(
        self, nodes: list[RunningNode], seed: int, *, workers: int = WORKERS
    ) -> None:
        self._nodes = nodes
        self._seed = seed
        self._workers = workers
        self._log_seen = [0] * len(nodes)
        self._phases = 0
        self.victim = Victim(nodes)
        self.total = Report()
        self.requests = 0
        self.findings: list[str] = []

    def prepare(self) -> None:
        """The topics of the bystander and of the attackers."""
        with RawConnection(self._nodes[0].host, self._nodes[0].port) as connection:
            connection.ask(CreateTopicsRequest(timeout=30_000, topics=[
                CreatableTopic(name=name, num_partitions=count, replication_factor=-1, configs=[
                    CreatableTopicConfig(name="diskless.enable", value="true")]
                    if name in DISKLESS_TOPICS else [])
                for name, count in [(VICTIM_TOPIC, 1), *((name, 4) for name in TOPICS[:14])]]), 7)
            connection.ask(FindCoordinatorRequest(key=VICTIM_GROUP), 3)

    def phase(self, requests: int, seconds: float) -> None:
        """So many requests, while the bystander is served; then a start anew."""
        self._phases += 1
        started = time.monotonic()
        self.victim.start()
        context = multiprocessing.get_context("spawn")
        done = context.Value("q", 0)
        results: Any = context.Queue()
        ids, cluster_id = self._ids()
        processes = []
        for number in range(self._workers):
            orders = Orders(
                [(node.host, node.port) for node in self._nodes],
                self._seed * 1_000_003 + self._phases * 101 + number, requests // self._workers,
                started + seconds, ids, cluster_id)
            processes.append(context.Process(target=work, args=(orders, done, results)))
            processes[-1].start()
        reports = []
        marks: list[int] = []
        while len(reports) < len(processes):
            while not results.empty():
                reports.append(results.get())
            self._look()
            if done.value >= (len(marks) + 1) * MARK_EVERY:
                marks.append(max(map(anonymous_size, filter(_runs, self._nodes)), default=0))
                self._print(f"{self.requests + done.value} requests, "
                            f"{done.value / (time.monotonic() - started):.0f} a second; "
                            f"{marks[-1] >> 20} MiB, "
                            f"{max(map(len, map(_descriptors, self._nodes)))} descriptors; "
                            f"bystander {self.victim.percentiles()}")
            if self.findings and any(process.is_alive() for process in processes):
                for process in processes:
                    process.terminate()
                break
            time.sleep(0.2)
        for process in processes:
            process.join()
        self.victim.stop()
        for report in reports:
            self._add(report)
        self.findings += self.victim.verdict()
        for before, after in pairwise(marks):
            if after - before > GROWTH_MAX:
                self.findings.append(f"memory grew from {before >> 20} to {after >> 20} MiB")
        self._look()
        self._look_at_sockets()
        if not self.findings:
            self._restart()

    def _ids(self) -> tuple[dict[str, UUID], str]:
        with RawConnection(self._nodes[0].host, self._nodes[0].port) as connection:
            answer = connection.ask(MetadataRequest(topics=None), 12)
        assert isinstance(answer, MetadataResponse)
        return ({topic.name: topic.topic_id for topic in answer.topics if topic.name},
                answer.cluster_id or "")

    def _add(self, report: Report) -> None:
        for name in ("sent", "decoded", "succeeded", "closed"):
            counts: Counter[int] = getattr(self.total, name)
            counts.update(getattr(report, name))
        self.total.stalled = max(self.total.stalled, report.stalled)
        self.requests += report.sent.total()
        self.findings += report.findings
        self.total.frames += report.frames

    def _look(self) -> None:
        """At what must hold at any time."""
        for place, node in enumerate(self._nodes):
            if not node.runs:
                self.findings.append(f"the node ended; it logged {node.log_text()[-3000:]}")
                return
            size = anonymous_size(node)
            if size > ANONYMOUS_MAX:
                self.findings.append(f"memory: {size >> 20} MiB")
            self._look_at_log(place, node)

    def _look_at_log(self, place: int, node: RunningNode) -> None:
        with node.log_path.open("rb") as log:
            log.seek(self._log_seen[place])
            lines = log.read().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        self._log_seen[place] += sum(map(len, whole))
        for number, raw in enumerate(whole):
            line = raw.decode(errors="replace")
            level = line.split(" ", 2)[1:2]
            if level in (["ERROR"], ["CRITICAL"]) and not any(
                    text in line for text in EXPLAINED):
                trace = b"".join(whole[number:number + 40]).decode(errors="replace")
                self.findings.append(f"in the log: {trace}")
                return

    def _look_at_sockets(self) -> None:
        """After all clients have disconnected, no connection is left."""
        deadline = time.monotonic() + 10.0
        sockets_max = SOCKETS_MAX * len(self._nodes)
        while all(map(_runs, self._nodes)):
            sockets = max(sum(name.startswith("socket:") for name in _descriptors(node))
                          for node in self._nodes)
            if sockets <= sockets_max:
                return
            if time.monotonic() > deadline:
                self.findings.append(f"{sockets} sockets stay though nobody is connected")
                return
            time.sleep(0.2)

    def _restart(self) -> None:
        how = "killed" if self._phases % 2 else "stopped"
        node = self._nodes[self._phases % len(self._nodes)]
        try:
            if how == "killed":
                node.kill()
            elif (code := node.stop()) != 0:
                self.findings.append(f"stopped with exit code {code}")
            node.start(timeout=START_SECONDS_MAX)
        except NodeFailed as error:
            self.findings.append(f"{how}, and then: {error}")
            return
        self._print(f"{self.requests} requests; {how}, ready after "
                    f"{node.start_seconds:.1f} s; {len(self.victim.written)} records of the "
                    "bystander")
        try:
            self.findings += self.victim.check_kept()
        except Exception as error:  # noqa: BLE001 whatever it is, it is a finding
            self.findings.append(f"bystander, after a start: {error!r}")
        self._look()

    def _print(self, text: str) -> None:
        print(f"  {text}", flush=True)

    def summary(self) -> str:
        """What was done, per API."""
        total = self.total
        lines = ["  API                              requests   looked at   no error   closed"]
        lines += [f"  {name_of(key):30} {count:10} {total.decoded[key]:11} "
                  f"{total.succeeded[key]:10} {total.closed[key]:8}"
                  for key, count in sorted(total.sent.items())]
        return "\n".join(lines)


def _runs(node: RunningNode) -> bool:
    return node.runs


def _descriptors(node: RunningNode) -> list[str]:
    found = []
    for each in Path(f"/proc/{node.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(str(each.readlink()))
    return found


@contextlib.contextmanager
def running(directory: Path, count: int) -> Iterator[list[RunningNode]]:
    """One node, or a cluster of so many."""
    if count == 1:
        with RunningNode(directory / "data", settings=SETTINGS) as node:
            yield [node]
        return
    server = PostgresServer()
    settings = {**SETTINGS, "diskless.control.plane.url": server.url,
                "diskless.storage.url": (directory / "objects").as_uri()}
    try:
        with RunningCluster(directory, nodes=count, settings=settings, patient=True) as cluster:
            yield list(cluster.nodes.values())
    finally:
        server.stop()


def run(
    requests: int, seed: int, seconds: float, *, phase: int = RESTART_EVERY, nodes: int = 1,
    directory: Path | None = None, workers: int = WORKERS,
) -> Soak:
    """Attack until the requests, or the seconds, are used up, or something is found."""
    started = time.monotonic()
    print(f"hostile requests: {requests}, seed {seed}, {seconds:g} s at most", flush=True)
    with tempfile.TemporaryDirectory() as temporary, running(
            directory or Path(temporary), nodes) as them:
        soak = Soak(them, seed, workers=workers)
        soak.prepare()
        while not soak.findings and soak.requests < requests:
            left = seconds - (time.monotonic() - started)
            if left <= 0:
                break
            soak.phase(min(phase, requests - soak.requests + workers - 1), left)
    elapsed = time.monotonic() - started
    print(soak.summary())
    print(f"{soak.requests} requests in {elapsed:.0f} s ({soak.requests / elapsed:.0f} a second); "
          f"bystander: {len(soak.victim.seconds)} answers, {soak.victim.percentiles()}; "
          f"longest turn of a worker {soak.total.stalled:.1f} s; {len(soak.findings)} findings",
          flush=True)
    return soak


def replay(path: Path) -> None:
    """Send the frames of a finding one by one, each on a connection of its own."""
    with tempfile.TemporaryDirectory() as directory, RunningNode(
            Path(directory) / "data", settings=SETTINGS) as node:
        Soak([node], 0).prepare()
        for text in path.read_text().split():
            frame = bytes.fromhex(text)
            header, request = decode_request(memoryview(frame)[4:])
            print(f"v{header.api_version} {request}"[:2000])
            with RawConnection(node.host, node.port) as connection:
                connection.send(frame)
                try:
                    print(f"  answered: {connection.receive_frame()[:100].hex()}")
                except OSError as error:
                    print(f"  {error!r}")
        print(node.log_text()[-8000:])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--requests", type=int, default=2_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--phase", type=int, default=RESTART_EVERY,
                        help="requests between two starts")
    parser.add_argument("--nodes", type=int, choices=[1, 3], default=1)
    parser.add_argument("--directory", type=Path, default=None,
                        help="where the node's data and log are kept; by default they are not")
    parser.add_argument("--replay", type=Path, default=None, help="the file of a finding")
    arguments = parser.parse_args()
    if arguments.replay is not None:
        replay(arguments.replay)
        return 0
    soak = run(arguments.requests, arguments.seed, arguments.seconds, phase=arguments.phase,
               nodes=arguments.nodes, directory=arguments.directory)
    for finding in soak.findings:
        print(f"finding: {finding}", file=sys.stderr)
    if soak.total.frames:
        path = Path(tempfile.gettempdir()) / f"hostile-{arguments.seed}.frames"
        path.write_text("\n".join(frame.hex() for frame in soak.total.frames[:100]))
        print(f"the frames under way: python -m tests.soak.hostile_requests --replay {path}",
              file=sys.stderr)
    return 1 if soak.findings else 0


if __name__ == "__main__":
    sys.exit(main())

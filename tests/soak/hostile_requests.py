"""Well-formed requests with hostile values for every API and version, at a real node, without end.

    python -m tests.soak.hostile_requests --requests 2000000 --seed 7 --seconds 3600
    python -m tests.soak.hostile_requests --replay FINDING

A few processes send (hostile_worker.py) what hostile_values.py makes.  Meanwhile a bystander writes
with acks=all, reads back, commits its offset and asks for metadata.  After every RESTART_EVERY
requests the node is killed or, by turns, stopped, and started again: what the bystander was told to
be kept must be there.

A finding ends the run with exit code 1:
    * the node's process ends, or writes an error to its log
    * what the workers find: no answer, one that does not decode, a connection closed without reason
    * the bystander is refused, waits for too long, or misses something
    * memory beyond a bound or growing without end; descriptors that stay
    * no start within START_SECONDS_MAX

The frames that were under way are then written to a file, which --replay sends again one by one.
"""

import argparse
import multiprocessing
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from quipu.wire.frame import decode_request
from quipu.wire.messages.k00_produce import ProduceResponse
from quipu.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from quipu.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from quipu.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from quipu.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from quipu.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from quipu.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from quipu.wire.record_batch import decode_records
from quipu.wire.schema import Request, Response
from tests.harness.node import NodeFailed, RunningNode
from tests.harness.raw import RawConnection
from tests.hostile.bystander import anonymous_size, produce_request
from tests.soak.hostile_values import TOPICS, VICTIM_GROUP, VICTIM_TOPIC
from tests.soak.hostile_worker import Orders, Report, name_of, work

MIB: Final = 1 << 20
WORKERS: Final = 2
MARK_EVERY: Final = 100_000  # requests between two looks at memory
RESTART_EVERY: Final = 200_000
START_SECONDS_MAX: Final = 20.0
ANONYMOUS_MAX: Final = 400 * MIB
GROWTH_MAX: Final = 120 * MIB  # from one mark to the next, of one process
P99_SECONDS_MAX: Final = 1.0
BYSTANDER_PAUSE_SECONDS: Final = 0.02
SOCKETS_MAX: Final = 12  # of a node that nobody talks to: listeners, and the loop's own
READ_BACK_MAX: Final = 300  # records of the bystander that are looked for after a start
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
}
# Lines of the log at level ERROR that are as they should be, and why.
EXPLAINED: Final[dict[str, str]] = {}


class Victim:
    """The bystander: what it was told is kept, and for how long it waited."""

    def __init__(self, node: RunningNode) -> None:
        self._node = node
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.written: list[tuple[int, bytes]] = []  # offset, value
        self.committed = -1
        self.seconds: list[float] = []
        self.failure: str | None = None

    def start(self) -> None:
        self._stopped.clear()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def percentiles(self) -> str:
        ordered = sorted(self.seconds) or [0.0]
        shares = [ordered[min(len(ordered) - 1, int(len(ordered) * share))]
                  for share in (0.5, 0.99, 1.0)]
        return "p50 {:.0f} ms, p99 {:.0f} ms, max {:.0f} ms".format(*(s * 1e3 for s in shares))

    def verdict(self) -> list[str]:
        found = [f"bystander: {self.failure}"] if self.failure else []
        ordered = sorted(self.seconds)
        if ordered and ordered[int(len(ordered) * 0.99)] > P99_SECONDS_MAX:
            found.append(f"bystander: {len(ordered)} answers, {self.percentiles()}")
        return found

    def check_kept(self) -> list[str]:
        """After a start: all that was acknowledged is there."""
        found = []
        with RawConnection(self._node.host, self._node.port) as connection:
            chosen = self.written if len(self.written) <= READ_BACK_MAX else [
                *random.Random(len(self.written)).sample(self.written, READ_BACK_MAX // 2),
                *self.written[-READ_BACK_MAX // 2:]]
            for offset, value in chosen:
                if self._read(connection, offset) != value:
                    found.append(f"bystander: record {offset} is not what was acknowledged")
            committed = self._read_commit(connection)
            if committed < self.committed:
                found.append(f"bystander: offset {self.committed} was committed, now {committed}")
        return found[:5]

    def _run(self) -> None:
        try:
            with RawConnection(self._node.host, self._node.port) as connection:
                while not self._stopped.is_set():
                    self._step(connection)
                    time.sleep(BYSTANDER_PAUSE_SECONDS)
        except BaseException as failure:  # noqa: BLE001 told by `verdict`
            self.failure = repr(failure)

    def _ask(self, connection: RawConnection, request: Request, version: int) -> Response:
        started = time.monotonic()
        answer = connection.ask(request, version)
        self.seconds.append(time.monotonic() - started)
        return answer

    def _step(self, connection: RawConnection) -> None:
        """Write, read back, commit, and ask who leads."""
        value = b"bystander %d" % len(self.written)
        produced = self._ask(connection, produce_request(VICTIM_TOPIC, value), 9)
        assert isinstance(produced, ProduceResponse)
        part = produced.responses[0].partition_responses[0]
        assert part.error_code == 0, f"Produce: error {part.error_code}"
        self.written.append((part.base_offset, value))
        assert self._read(connection, part.base_offset) == value, "its record is not there"
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=part.base_offset + 1)
        commit = self._ask(connection, OffsetCommitRequest(group_id=VICTIM_GROUP, topics=[
            OffsetCommitRequestTopic(name=VICTIM_TOPIC, partitions=[partition])]), 8)
        assert isinstance(commit, OffsetCommitResponse)
        code = commit.topics[0].partitions[0].error_code
        assert code == 0, f"OffsetCommit: error {code}"
        self.committed = part.base_offset + 1
        metadata = self._ask(
            connection, MetadataRequest(topics=[MetadataRequestTopic(name=VICTIM_TOPIC)]), 9)
        assert isinstance(metadata, MetadataResponse)
        assert metadata.topics[0].error_code == 0, f"Metadata: {metadata.topics[0].error_code}"

    def _read(self, connection: RawConnection, offset: int) -> bytes | None:
        wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1)
        answer = self._ask(connection, FetchRequest(
            max_wait=1000, min_bytes=1, max_bytes=MIB,
            topics=[FetchTopic(topic=VICTIM_TOPIC, partitions=[wanted])]), 11)
        assert isinstance(answer, FetchResponse)
        part = answer.responses[0].partitions[0]
        assert part.error_code == 0, f"Fetch at {offset}: error {part.error_code}"
        records = list(decode_records(part.records or memoryview(b""), size_max=MIB))
        return records[0].value if len(records) == 1 else None

    def _read_commit(self, connection: RawConnection) -> int:
        connection.ask(FindCoordinatorRequest(key=VICTIM_GROUP), 3)
        answer = connection.ask(OffsetFetchRequest(group_id=VICTIM_GROUP, topics=[
            OffsetFetchRequestTopic(name=VICTIM_TOPIC, partition_indexes=[0])]), 7)
        assert isinstance(answer, OffsetFetchResponse)
        part = answer.topics[0].partitions[0]
        assert part.error_code == 0, f"OffsetFetch: error {part.error_code}"
        return part.committed_offset


class Soak:
    """A node, its bystander, and all that was seen."""

    def __init__(self, node: RunningNode, seed: int, *, workers: int = WORKERS) -> None:
        self._node = node
        self._seed = seed
        self._workers = workers
        self._log_seen = 0
        self._phases = 0
        self.victim = Victim(node)
        self.total = Report()
        self.requests = 0
        self.findings: list[str] = []

    def prepare(self) -> None:
        """The topics of the bystander and of the attackers."""
        with RawConnection(self._node.host, self._node.port) as connection:
            connection.ask(CreateTopicsRequest(timeout=30_000, topics=[
                CreatableTopic(name=name, num_partitions=count, replication_factor=-1)
                for name, count in [(VICTIM_TOPIC, 1), *((name, 4) for name in TOPICS[:12])]]), 7)
            connection.ask(FindCoordinatorRequest(key=VICTIM_GROUP), 3)

    def phase(self, requests: int, seconds: float) -> None:
        """So many requests, while the bystander is served; then a start anew."""
        self._phases += 1
        started, pid = time.monotonic(), self._node.pid
        self.victim.start()
        context = multiprocessing.get_context("spawn")
        done = context.Value("q", 0)
        results: Any = context.Queue()
        ids, cluster_id = self._ids()
        processes = []
        for number in range(self._workers):
            orders = Orders(
                self._node.host, self._node.port, self._seed * 1_000_003 + self._phases * 101
                + number, requests // self._workers, started + seconds, ids, cluster_id)
            processes.append(context.Process(target=work, args=(orders, done, results)))
            processes[-1].start()
        reports = []
        marks: list[int] = []
        while len(reports) < len(processes):
            while not results.empty():
                reports.append(results.get())
            self._look(pid)
            if done.value >= (len(marks) + 1) * MARK_EVERY:
                marks.append(anonymous_size(self._node) if self._node.runs else 0)
                self._print(f"{self.requests + done.value} requests, "
                            f"{done.value / (time.monotonic() - started):.0f} a second; "
                            f"{marks[-1] >> 20} MiB, {len(self._descriptors())} descriptors; "
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
        self._look(pid)
        self._look_at_sockets()
        if not self.findings:
            self._restart()

    def _ids(self) -> tuple[dict[str, UUID], str]:
        with RawConnection(self._node.host, self._node.port) as connection:
            answer = connection.ask(MetadataRequest(topics=None), 12)
        assert isinstance(answer, MetadataResponse)
        return ({topic.name: topic.topic_id for topic in answer.topics if topic.name},
                answer.cluster_id or "")

    def _add(self, report: Report) -> None:
        for name in ("sent", "decoded", "succeeded", "closed"):
            counts: Counter[int] = getattr(self.total, name)
            counts.update(getattr(report, name))
        self.requests += report.sent.total()
        self.findings += report.findings
        self.total.frames += report.frames

    def _look(self, pid: int) -> None:
        """At what must hold at any time."""
        if self._node.pid != pid or not self._node.runs:
            self.findings.append(f"the node ended; it logged {self._node.log_text()[-3000:]}")
            return
        size = anonymous_size(self._node)
        if size > ANONYMOUS_MAX:
            self.findings.append(f"memory: {size >> 20} MiB")
        with self._node.log_path.open("rb") as log:
            log.seek(self._log_seen)
            lines = log.read().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        self._log_seen += sum(map(len, whole))
        for place, raw in enumerate(whole):
            line = raw.decode(errors="replace")
            level = line.split(" ", 2)[1:2]
            if level in (["ERROR"], ["CRITICAL"]) and not any(
                    text in line for text in EXPLAINED):
                trace = b"".join(whole[place:place + 40]).decode(errors="replace")
                self.findings.append(f"in the log: {trace}")
                return

    def _descriptors(self) -> list[str]:
        found = []
        for each in Path(f"/proc/{self._node.pid}/fd").iterdir():
            try:
                found.append(str(each.readlink()))
            except OSError:
                continue
        return found

    def _look_at_sockets(self) -> None:
        """When everybody has gone, no connection stays."""
        deadline = time.monotonic() + 10.0
        while self._node.runs:
            sockets = sum(name.startswith("socket:") for name in self._descriptors())
            if sockets <= SOCKETS_MAX:
                return
            if time.monotonic() > deadline:
                self.findings.append(f"{sockets} sockets stay though nobody is connected")
                return
            time.sleep(0.2)

    def _restart(self) -> None:
        how = "killed" if self._phases % 2 else "stopped"
        try:
            if how == "killed":
                self._node.kill()
            elif (code := self._node.stop()) != 0:
                self.findings.append(f"stopped with exit code {code}")
            self._node.start(timeout=START_SECONDS_MAX)
        except NodeFailed as error:
            self.findings.append(f"{how}, and then: {error}")
            return
        self._print(f"{self.requests} requests; {how}, ready after "
                    f"{self._node.start_seconds:.1f} s; {len(self.victim.written)} records of the "
                    "bystander")
        try:
            self.findings += self.victim.check_kept()
        except Exception as error:  # noqa: BLE001 whatever it is, it is a finding
            self.findings.append(f"bystander, after a start: {error!r}")
        self._look(self._node.pid)

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


def run(
    requests: int, seed: int, seconds: float, *, phase: int = RESTART_EVERY,
    directory: Path | None = None, workers: int = WORKERS,
) -> Soak:
    """Attack until the requests, or the seconds, are used up, or something is found."""
    started = time.monotonic()
    print(f"hostile requests: {requests}, seed {seed}, {seconds:g} s at most", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        node = RunningNode((directory or Path(temporary)) / "data", settings=SETTINGS)
        with node:
            soak = Soak(node, seed, workers=workers)
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
          f"{len(soak.findings)} findings", flush=True)
    return soak


def replay(path: Path) -> None:
    """Send the frames of a finding one by one, each on a connection of its own."""
    with tempfile.TemporaryDirectory() as directory, RunningNode(
            Path(directory) / "data", settings=SETTINGS) as node:
        Soak(node, 0).prepare()
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
    parser.add_argument("--directory", type=Path, default=None,
                        help="where the node's data and log are kept; by default they are not")
    parser.add_argument("--replay", type=Path, default=None, help="the file of a finding")
    arguments = parser.parse_args()
    if arguments.replay is not None:
        replay(arguments.replay)
        return 0
    soak = run(arguments.requests, arguments.seed, arguments.seconds, phase=arguments.phase,
               directory=arguments.directory)
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

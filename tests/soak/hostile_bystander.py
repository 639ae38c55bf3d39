"""A client that must be served while others are hostile, and checks its acknowledged writes.

It writes with acks=all, reads back, commits its offset and requests metadata, repeatedly; it
measures each response, and after a restart it looks for all that was acknowledged.
"""

import random
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

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
from quipu.wire.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from quipu.wire.record_batch import decode_records
from quipu.wire.schema import Request, Response
from tests.harness.node import RunningNode
from tests.harness.raw import RawConnection
from tests.hostile.bystander import produce_request
from tests.soak.hostile_values import VICTIM_GROUP, VICTIM_TOPIC

T = TypeVar("T")

MIB: Final = 1 << 20
FETCH_VERSION: Final = 10  # with later ones a leader may send its readers to another node
P99_SECONDS_MAX: Final = 1.0
BYSTANDER_PAUSE_SECONDS: Final = 0.02
READ_BACK_MAX: Final = 300  # records that are looked for after a start
MOVED_SECONDS_MAX: Final = 30.0  # until somebody leads again, in a cluster
# Codes that say: the leader, or the coordinator, is another node, or is not there yet.
MOVED: Final = frozenset({5, 6, 7, 14, 15, 16, 19, 74, 75})


class Moved(Exception):
    """Another node leads, or will soon: look up the leader again."""


class Victim:
    """The bystander: records its acknowledged writes, and how long it waited."""

    def __init__(self, nodes: list[RunningNode]) -> None:
        self._nodes = nodes
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
        return self._served(self._check_kept)

    def _check_kept(self, leader: RawConnection, coordinator: RawConnection) -> list[str]:
        chosen = self.written if len(self.written) <= READ_BACK_MAX else [
            *random.Random(len(self.written)).sample(self.written, READ_BACK_MAX // 2),
            *self.written[-READ_BACK_MAX // 2:]]
        found = [f"bystander: record {offset} is not what was acknowledged"
                 for offset, value in chosen if self._read(leader, offset) != value]
        committed = self._read_commit(coordinator)
        if committed < self.committed:
            found.append(f"bystander: offset {self.committed} was committed, now {committed}")
        return found[:5]

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._served(self._steps)
        except BaseException as failure:  # noqa: BLE001 told by `verdict`
            self.failure = repr(failure)

    def _served(self, work: Callable[[RawConnection, RawConnection], T]) -> T:
        """Do `work` with the topic's leader and the group's coordinator; both may move."""
        deadline = time.monotonic() + MOVED_SECONDS_MAX
        while True:
            try:
                leader, coordinator = self._find()
                with (RawConnection(*leader) as one, RawConnection(*coordinator) as other):
                    return work(one, other)
            except Moved:
                if len(self._nodes) == 1 or time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _find(self) -> tuple[tuple[str, int], tuple[str, int]]:
        with RawConnection(self._nodes[0].host, self._nodes[0].port) as connection:
            metadata = connection.ask(
                MetadataRequest(topics=[MetadataRequestTopic(name=VICTIM_TOPIC)]), 9)
            found = connection.ask(FindCoordinatorRequest(key=VICTIM_GROUP), 3)
        assert isinstance(metadata, MetadataResponse)
        assert isinstance(found, FindCoordinatorResponse)
        brokers = {each.node_id: (each.host, each.port) for each in metadata.brokers}
        if not metadata.topics[0].partitions or found.error_code:
            raise Moved(f"{metadata.topics}, {found}")
        leader = metadata.topics[0].partitions[0].leader_id
        if leader not in brokers:
            raise Moved(f"leader {leader}")
        return brokers[leader], (found.host, found.port)

    def _ask(self, connection: RawConnection, request: Request, version: int) -> Response:
        started = time.monotonic()
        answer = connection.ask(request, version)
        self.seconds.append(time.monotonic() - started)
        return answer

    def _steps(self, leader: RawConnection, coordinator: RawConnection) -> None:
        while not self._stopped.is_set():
            self._step(leader, coordinator)
            time.sleep(BYSTANDER_PAUSE_SECONDS)

    def _step(self, leader: RawConnection, coordinator: RawConnection) -> None:
        """Write, read back, commit, and request metadata."""
        value = b"bystander %d" % len(self.written)
        produced = self._ask(leader, produce_request(VICTIM_TOPIC, value), 9)
        assert isinstance(produced, ProduceResponse)
        part = produced.responses[0].partition_responses[0]
        _check(part.error_code, "Produce")
        self.written.append((part.base_offset, value))
        assert self._read(leader, part.base_offset) == value, "its record is not there"
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=part.base_offset + 1)
        commit = self._ask(coordinator, OffsetCommitRequest(group_id=VICTIM_GROUP, topics=[
            OffsetCommitRequestTopic(name=VICTIM_TOPIC, partitions=[partition])]), 8)
        assert isinstance(commit, OffsetCommitResponse)
        _check(commit.topics[0].partitions[0].error_code, "OffsetCommit")
        self.committed = part.base_offset + 1
        metadata = self._ask(
            leader, MetadataRequest(topics=[MetadataRequestTopic(name=VICTIM_TOPIC)]), 9)
        assert isinstance(metadata, MetadataResponse)
        _check(metadata.topics[0].error_code, "Metadata")

    def _read(self, connection: RawConnection, offset: int) -> bytes | None:
        wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1)
        answer = self._ask(connection, FetchRequest(
            max_wait=1000, min_bytes=1, max_bytes=MIB,
            topics=[FetchTopic(topic=VICTIM_TOPIC, partitions=[wanted])]), FETCH_VERSION)
        assert isinstance(answer, FetchResponse)
        part = answer.responses[0].partitions[0]
        _check(part.error_code, f"Fetch at {offset}")
        records = list(decode_records(part.records or memoryview(b""), size_max=MIB))
        return records[0].value if len(records) == 1 else None

    def _read_commit(self, connection: RawConnection) -> int:
        answer = connection.ask(OffsetFetchRequest(group_id=VICTIM_GROUP, topics=[
            OffsetFetchRequestTopic(name=VICTIM_TOPIC, partition_indexes=[0])]), 7)
        assert isinstance(answer, OffsetFetchResponse)
        part = answer.topics[0].partitions[0]
        _check(answer.error_code or part.error_code, "OffsetFetch")
        return part.committed_offset


def _check(code: int, what: str) -> None:
    if code in MOVED:
        raise Moved(f"{what}: error {code}")
    assert code == 0, f"{what}: error {code}"

"""Hostile values on diskless topics: a bystander on a classic topic is served meanwhile."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from quipu.model.errors import Code
from quipu.wire.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from quipu.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from quipu.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from quipu.wire.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from quipu.wire.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from quipu.wire.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from quipu.wire.messages.k10003_describe_remote_segments import (
    DescribeRemoteSegmentsRequest,
    RemoteSegmentsPartition,
    RemoteSegmentsTopic,
)
from quipu.wire.messages.k10004_describe_diskless_runs import (
    DescribeDisklessRunsRequest,
    DisklessRunsPartition,
    DisklessRunsTopic,
)
from quipu.wire.record_batch import Record, encode_batch
from quipu.wire.schema import Request
from tests.harness.node import RunningNode
from tests.harness.postgres import PostgresServer
from tests.harness.progress import wait_for
from tests.harness.raw import RawConnection
from tests.hostile.bystander import TOPIC, undisturbed
from tests.hostile.scrape import await_metric, metrics

pytestmark = pytest.mark.xdist_group("hostile-diskless")

WIDE = "diskless"
PARTITIONS = 10_000
ENDS = (-(1 << 63), -(1 << 31), -5, -2, -1, 0, 1, 2, (1 << 31) - 1, (1 << 63) - 2, (1 << 63) - 1)
ANONYMOUS_MAX = 450 << 20
# Ten thousand batches or reads at once make so many objects that collecting garbage takes time.
WIDE_P99_SECONDS_MAX = 0.3
ANSWER_SECONDS_MAX = 60.0
SETTINGS = {"diskless.storage.system.enable": "true", "diskless.flush.interval.ms": "20",
            "max.partitions": "20000", "remote.log.storage.system.enable": "true"}
NAMES = ("", ".", "x" * 249, "y" * 30_000, "\0", "__consumer_offsets", TOPIC, WIDE)


def ask(node: RunningNode, request: Request, version: int) -> Any:
    with RawConnection(node.host, node.port, timeout=ANSWER_SECONDS_MAX) as connection:
        return connection.ask(request, version)


def metric(node: RunningNode, name: str) -> float:
    return metrics(node)[name]


def create(node: RunningNode, partitions: int) -> None:
    made = ask(node, CreateTopicsRequest(timeout=60_000, topics=[
        CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=-1),
        CreatableTopic(name=WIDE, num_partitions=min(partitions, 5000), replication_factor=-1,
                       configs=[CreatableTopicConfig(name="diskless.enable", value="true")])]), 7)
    assert [topic.error_code for topic in made.topics] == [0, 0], made
    if partitions > 5000:
        grown = ask(node, CreatePartitionsRequest(timeout=60_000, topics=[
            CreatePartitionsTopic(name=WIDE, count=partitions, assignments=None)]), 3)
        assert [topic.error_code for topic in grown.results] == [0], grown


def produce(partitions: range, timeout: int = 30_000) -> ProduceRequest:
    batch = memoryview(encode_batch([Record(None, b"x")]))
    return ProduceRequest(acks=-1, timeout=timeout, topic_data=[TopicProduceData(
        name=WIDE, partition_data=[PartitionProduceData(index=index, records=batch)
                                   for index in partitions])])


def fetch(*targets: tuple[int, int], max_wait: int = 100) -> FetchRequest:
    """Partitions with offsets."""
    topic = FetchTopic(topic=WIDE, partitions=[
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 16)
        for index, offset in targets])
    return FetchRequest(
        max_wait=max_wait, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=[topic])


def list_offsets(*targets: tuple[int, int]) -> ListOffsetsRequest:
    """Partitions with timestamps."""
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=WIDE, partitions=[
        ListOffsetsPartition(partition_index=index, timestamp=timestamp, current_leader_epoch=-1)
        for index, timestamp in targets])])


def delete_records(*targets: tuple[int, int], timeout: int = 5000) -> DeleteRecordsRequest:
    return DeleteRecordsRequest(timeout=timeout, topics=[DeleteRecordsTopic(
        name=WIDE, partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)
                               for index, offset in targets])])


def runs(name: str, *ranges: tuple[int, int, int], limit: int = 1000) -> Request:
    return DescribeDisklessRunsRequest(limit=limit, max_bytes=limit, topics=[DisklessRunsTopic(
        name=name, partitions=[DisklessRunsPartition(
            partition_index=index, start_offset=start, end_offset=end)
            for index, start, end in ranges])])


def segments(name: str, *starts: tuple[int, int], limit: int = 1000) -> Request:
    return DescribeRemoteSegmentsRequest(limit=limit, topics=[RemoteSegmentsTopic(
        name=name, partitions=[RemoteSegmentsPartition(
            partition_index=index, start_offset=start, end_offset=start)
            for index, start in starts])])


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with RunningNode(tmp_path_factory.mktemp("diskless") / "data", settings=SETTINGS) as node:
        create(node, PARTITIONS)
        await_metric(node, "quipu_diskless_control_plane_reachable", lambda value: value == 1)
        first = ask(node, produce(range(PARTITIONS - 10, PARTITIONS)), 9)
        assert {each.error_code for each in first.responses[0].partition_responses} == {0}
        yield node
        assert node.stop() == 0


def test_one_request_to_ten_thousand_partitions(wide: RunningNode) -> None:
    """K8, D6: few records each; all of them are written, in few objects."""
    puts = metric(wide, "quipu_diskless_puts_total")
    answers: list[Any] = []
    print(undisturbed(wide, lambda: answers.append(ask(wide, produce(range(9_900)), 9)),
                      anonymous_max=ANONYMOUS_MAX, p99_max=WIDE_P99_SECONDS_MAX))
    for answer in answers:
        parts = answer.responses[0].partition_responses
        assert {part.error_code for part in parts} == {0}
        assert len(parts) == 9_900
    assert metric(wide, "quipu_diskless_puts_total") - puts <= 40 * len(answers) + 8


def test_offsets_at_their_ends(wide: RunningNode) -> None:
    """K8, D5: Fetch, ListOffsets and DeleteRecords; each partition has an answer of its own."""
    last = range(PARTITIONS - len(ENDS), PARTITIONS)
    targets = list(zip(last, ENDS, strict=True))

    def attack() -> None:
        fetched = ask(wide, fetch(*targets), 12).responses[0].partitions
        codes = {Code(part.error_code) for part in fetched}
        assert codes <= {Code.NONE, Code.OFFSET_OUT_OF_RANGE}
        for part in ask(wide, list_offsets(*targets), 8).topics[0].partitions:
            assert part.error_code in (0, Code.INVALID_REQUEST, Code.UNSUPPORTED_VERSION), part
        deleted = ask(wide, delete_records(*[each for each in targets if each[1] != -1]), 2)
        assert {Code(part.error_code) for part in deleted.topics[0].partitions} <= {
            Code.NONE, Code.OFFSET_OUT_OF_RANGE, Code.INVALID_REQUEST}

    print(undisturbed(wide, attack, anonymous_max=ANONYMOUS_MAX))


def test_huge_offsets_of_all_partitions_take_few_questions(wide: RunningNode) -> None:
    """K8, D5: one Fetch asks the control plane a few times, however many partitions it names."""
    name = "quipu_diskless_finds_total"
    before, attacks = metric(wide, name), 0

    def attack() -> None:
        nonlocal attacks
        attacks += 1
        targets = ((index, (1 << 62) + attacks) for index in range(9_900))
        for part in ask(wide, fetch(*targets), 12).responses[0].partitions:
            assert part.error_code in (0, Code.OFFSET_OUT_OF_RANGE, Code.KAFKA_STORAGE_ERROR)

    print(undisturbed(wide, attack, anonymous_max=ANONYMOUS_MAX, p99_max=WIDE_P99_SECONDS_MAX))
    print((metric(wide, name) - before) / attacks, "questions for each")
    assert metric(wide, name) - before <= 60 * attacks


def test_descriptions_with_extremes_and_duplicates(wide: RunningNode) -> None:
    """K8, I17: 10004 and 10003: one partition ten thousand times, others' topics and none."""
    many: list[Request] = [
        runs(WIDE, *[(9_995, 0, 1)] * 9_990), segments(WIDE, *[(9_995, 0)] * 9_990),
        runs(WIDE, *((index, 0, 1 << 62) for index in range(9_990)), limit=(1 << 31) - 1),
        segments(WIDE, *((index, 0) for index in range(9_990)), limit=(1 << 31) - 1)]
    odd: list[Request] = []
    for name in NAMES:
        odd.append(runs(name, *((index, start, end) for index in (-1, 0, (1 << 31) - 1)
                                for start in ENDS for end in ENDS), limit=-1))
        odd.append(segments(name, *((index, start) for index in (-1, 0, (1 << 31) - 1)
                                    for start in ENDS), limit=-1))

    def attack() -> None:
        for request in (*many, *odd):
            with contextlib.suppress(EOFError, ConnectionError):  # a name that is too long
                ask(wide, request, 0)

    print(undisturbed(wide, attack, anonymous_max=ANONYMOUS_MAX, seconds=1.0))
    assert ask(wide, runs(WIDE, (9_995, 0, 1)), 0).topics[0].partitions[0].error_code == 0


def test_a_control_plane_that_hangs_holds_up_no_classic_topic(
    tmp_path_factory: pytest.TempPathFactory
) -> None:
    """D33, K8: PostgreSQL is stopped with its connections open; clients get errors, in time."""
    server = PostgresServer()
    path = tmp_path_factory.mktemp("hanging")
    try:
        with RunningNode(path / "data", settings={
                **SETTINGS, "diskless.control.plane.url": server.url}) as node:
            create(node, 3)
            wait_for(lambda: ask(node, produce(range(3)), 9).responses[0].partition_responses[
                0].error_code == 0)
            server.pause()
            codes: list[int] = []

            def attack() -> None:
                threads = [threading.Thread(target=each) for each in (
                    lambda: codes.extend(part.error_code for part in ask(
                        node, produce(range(3), timeout=500), 9).responses[0].partition_responses),
                    lambda: ask(node, fetch((0, 0), (1, 1 << 40), (2, 5)), 12),
                    lambda: ask(node, delete_records((0, 1), timeout=300), 2),
                    lambda: ask(node, list_offsets((0, -1), (1, 0)), 8),
                    lambda: ask(node, runs(WIDE, (0, 0, 9)), 0))]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()

            print(undisturbed(node, attack, anonymous_max=ANONYMOUS_MAX))
            assert set(codes) == {Code.REQUEST_TIMED_OUT}
            server.resume()
            wait_for(lambda: ask(node, produce(range(3)), 9).responses[0].partition_responses[
                0].error_code == 0)
            assert node.stop() == 0
    finally:
        server.resume()
        server.stop()

"""Learns in which objects the records of diskless partitions are; Quipu's own.

    part = describe_diskless_log(cluster, Range("orders", 0, 0, 1000))
    part.runs                                        # in order, for whoever reads the objects

Any broker responds, from the control plane.

Invariants
    client.D1  the runs of a part follow each other without a gap, and the first holds the first
               offset that was asked for
    client.D2  what a response says is checked and bounded; a response that is wrong is an error

Not here: objects and their bytes (diskless), what is read from them (pipeline/reading).
"""

from collections.abc import Iterable
from typing import Final, NamedTuple
from uuid import UUID

from quipu.client.cluster import Cluster
from quipu.client.errors import BrokerRefused, ConnectionFailed, broker_refused
from quipu.client.ranges import Range
from quipu.client.remote_log import URL_SIZE_MAX
from quipu.client.retry import Retry
from quipu.model.bounds import OFFSET_MAX
from quipu.model.errors import Code, MalformedBytes
from quipu.wire.messages.k10004_describe_diskless_runs import (
    DescribedDisklessPartition,
    DescribeDisklessRunsRequest,
    DescribeDisklessRunsResponse,
    DescribedRun,
    DisklessRunsPartition,
    DisklessRunsTopic,
)

RUNS_MAX: Final = 1000  # asked for at once
BYTES_MAX: Final = 1 << 30
KEY_SIZE_MAX: Final = 1024
RUN_SIZE_MAX: Final = 1 << 31


class ObjectRun(NamedTuple):
    """Batches that follow each other in one object."""

    key: str
    position: int
    size: int
    batch_count: int
    first: int  # offset
    end: int  # exclusive


class DisklessLogPart(NamedTuple):
    """A part of a diskless log, as the control plane had it."""

    topic_id: UUID
    log_start: int
    diskless_start: int  # records below it are in the remote tier
    high_watermark: int
    store_url: str | None  # None: no other process can open the store
    runs: tuple[ObjectRun, ...] = ()


def describe_diskless_log(
    cluster: Cluster, wanted: Range, *, seconds: float | None = None
) -> DisklessLogPart:
    """The runs of a range, at most RUNS_MAX of them: ask again after the last one.

    Retried for `seconds` (default.api.timeout.ms if not given); then the error is raised.
    """
    request = DescribeDisklessRunsRequest(limit=RUNS_MAX, max_bytes=BYTES_MAX, topics=[
        DisklessRunsTopic(name=wanted.topic, partitions=[DisklessRunsPartition(
            partition_index=wanted.partition, start_offset=wanted.first, end_offset=wanted.end)])])
    retry = Retry(cluster.settings, seconds=seconds)
    while True:
        try:
            return _taken(_ask(cluster, wanted, request), wanted)
        except (ConnectionFailed, BrokerRefused) as error:
            retry.pause(error)
        cluster.refresh({wanted.topic})


def _ask(
    cluster: Cluster, wanted: Range, request: DescribeDisklessRunsRequest
) -> DescribeDisklessRunsResponse:
    node_id = cluster.leader(wanted.topic_partition).node_id
    if node_id < 0:
        raise broker_refused(Code.LEADER_NOT_AVAILABLE, f"objects of {wanted.topic_partition}")
    connection = cluster.lend(node_id)  # the one that a fetch would use
    try:
        return connection.ask(request, DescribeDisklessRunsResponse)
    finally:
        cluster.give_back(connection)


def _taken(response: DescribeDisklessRunsResponse, wanted: Range) -> DisklessLogPart:
    url = response.storage_url
    if url is not None and len(url) > URL_SIZE_MAX:
        raise MalformedBytes(f"the URL of an object store of {len(url)} characters")
    for topic in response.topics:
        for part in topic.partitions:
            if (topic.name, part.partition_index) == (wanted.topic, wanted.partition):
                if part.error_code:
                    raise broker_refused(
                        part.error_code, f"objects of {wanted.topic_partition}",
                        part.error_message)
                return _part(wanted, topic.topic_id, url, part)
    raise broker_refused(Code.UNKNOWN_SERVER_ERROR, f"{wanted.topic_partition} was left out")


def _part(
    wanted: Range, topic_id: UUID, url: str | None, part: DescribedDisklessPartition
) -> DisklessLogPart:
    if not (part.is_diskless and 0 <= part.log_start_offset <= part.diskless_start_offset
            <= part.high_watermark < OFFSET_MAX):
        raise MalformedBytes(f"{wanted}: offsets {part.log_start_offset}, "
                             f"{part.diskless_start_offset} and {part.high_watermark} of a "
                             "diskless partition")
    return DisklessLogPart(
        topic_id, part.log_start_offset, part.diskless_start_offset, part.high_watermark, url,
        tuple(_runs(wanted, part.runs)))


def _runs(wanted: Range, runs: list[DescribedRun]) -> Iterable[ObjectRun]:
    """The runs of a response, checked (client.D1, client.D2)."""
    if len(runs) > RUNS_MAX:
        raise MalformedBytes(f"{wanted}: {len(runs)} runs; at most {RUNS_MAX} were asked for")
    reached = wanted.first
    for run in runs:
        is_next = run.base_offset <= reached < run.end_offset < OFFSET_MAX and (
            reached in {wanted.first, run.base_offset})
        if not (is_next and 0 <= run.base_offset < wanted.end and run.position >= 0
                and 0 < run.size <= RUN_SIZE_MAX and run.batch_count > 0
                and 0 < len(run.key) <= KEY_SIZE_MAX):
            raise MalformedBytes(f"{wanted}: a run of offsets {run.base_offset} to "
                                 f"{run.end_offset}, where one that holds {reached} was expected")
        yield ObjectRun(run.key, run.position, run.size, run.batch_count, run.base_offset,
                        run.end_offset)
        reached = run.end_offset

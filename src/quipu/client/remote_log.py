"""Learns which offsets of partitions are in a remote tier, and in which objects; Quipu's own.

    parts = describe_remote_log(cluster, [Range("orders", 0, 0, 1000)])
    parts[TopicPartition("orders", 0)].segments      # in order, for whoever reads the objects

Brokers of Kafka do not serve the request: then `NotServed` is raised, without any being sent.

Invariants
    client.L1  the segments of a part follow each other without a gap: the first holds the first
               offset asked for, each further one the offset after the last of the one before it
    client.L2  what a response says is checked and bounded; a response that is wrong is an error

Not here: objects and their bytes (remote/segments), what is read from them (pipeline/reading),
segments that are not read (admin/remote.py).
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from quipu.client.cluster import Cluster
from quipu.client.errors import ClientError, ConnectionFailed, broker_refused
from quipu.client.ranges import Range
from quipu.client.retry import Retry
from quipu.model.bounds import OFFSET_MAX
from quipu.model.errors import Code, MalformedBytes
from quipu.model.ids import TopicPartition
from quipu.wire.messages.k10003_describe_remote_segments import (
    DescribedRemotePartition,
    DescribedRemoteSegment,
    DescribeRemoteSegmentsRequest,
    DescribeRemoteSegmentsResponse,
    RemoteSegmentsPartition,
    RemoteSegmentsTopic,
)

SEGMENTS_MAX: Final = 100  # asked for at once: a hundred gigabytes, of segments of Kafka's size
CUSTOM_METADATA_SIZE_MAX: Final = 128
URL_SIZE_MAX: Final = 4096


class SegmentPlace(NamedTuple):
    """A segment in the remote tier; its offsets and its id name its object."""

    first: int
    end: int  # exclusive
    size: int
    segment_id: UUID
    custom_metadata: bytes


class RemoteLogPart(NamedTuple):
    """The part of a partition's log that the remote tier has, as its leader said."""

    topic_id: UUID
    log_start: int
    local_start: int  # from here on, brokers have the records themselves
    store_url: str | None  # None: no other process can open the store
    segments: tuple[SegmentPlace, ...] = ()
    next_offset: int = -1  # where to ask again; -1: these are all
    is_diskless: bool = False  # what is not in the tier is in objects too (diskless_log.py)


class PartitionAnswer(NamedTuple):
    """What the leader of a partition said of it."""

    topic_id: UUID
    store_url: str | None
    partition: DescribedRemotePartition


def describe_remote_log(
    cluster: Cluster, ranges: Iterable[Range], *, seconds: float | None = None,
) -> dict[TopicPartition, RemoteLogPart]:
    """The remote segments of some ranges, as their leaders know them.

    Retried for `seconds` (default.api.timeout.ms if not given) while leaders change or do not
    respond; then the error is raised.
    """
    wanted = {each.topic_partition: each for each in ranges}
    answers = ask_leaders(
        cluster, {name: RemoteSegmentsPartition(
            partition_index=each.partition, start_offset=each.first, end_offset=each.end)
            for name, each in wanted.items()}, limit=SEGMENTS_MAX, seconds=seconds)
    return {name: _part(wanted[name], answer) for name, answer in answers.items()}


# -- asking leaders


def ask_leaders(
    cluster: Cluster, wanted: Mapping[TopicPartition, RemoteSegmentsPartition], *, limit: int,
    in_any_state: bool = False, seconds: float | None = None,
) -> dict[TopicPartition, PartitionAnswer]:
    """The answer for each partition, whose leader is looked for again if it has changed."""
    retry = Retry(cluster.settings, seconds=seconds)
    left, found = dict(wanted), dict[TopicPartition, PartitionAnswer]()
    while left:
        error: ClientError | None = None
        by_leader: dict[int, list[TopicPartition]] = {}
        for name, each in left.items():
            leader = cluster.leader(name)
            each.current_leader_epoch = leader.epoch
            by_leader.setdefault(leader.node_id, []).append(name)
        for node_id, names in by_leader.items():
            if node_id < 0:
                error = broker_refused(Code.LEADER_NOT_AVAILABLE, "remote segments")
                continue
            try:
                response = _ask(cluster, node_id, DescribeRemoteSegmentsRequest(
                    limit=limit, in_any_state=in_any_state, topics=_topics(names, left)))
            except ConnectionFailed as failed:
                error = failed
            else:
                error = _take(response, names, found) or error
        left = {name: each for name, each in left.items() if name not in found}
        if left:
            retry.pause(error or broker_refused(Code.UNKNOWN_SERVER_ERROR, "partitions left out"))
            cluster.refresh({name.topic for name in left})
    return found


def _topics(
    names: Iterable[TopicPartition], wanted: Mapping[TopicPartition, RemoteSegmentsPartition]
) -> list[RemoteSegmentsTopic]:
    topics: dict[str, list[RemoteSegmentsPartition]] = {}
    for name in names:
        topics.setdefault(name.topic, []).append(wanted[name])
    return [RemoteSegmentsTopic(name=name, partitions=parts) for name, parts in topics.items()]


def _ask(
    cluster: Cluster, node_id: int, request: DescribeRemoteSegmentsRequest
) -> DescribeRemoteSegmentsResponse:
    connection = cluster.lend(node_id)  # the one that a fetch will use next
    try:
        return connection.ask(request, DescribeRemoteSegmentsResponse)
    finally:
        cluster.give_back(connection)


def _take(
    response: DescribeRemoteSegmentsResponse, asked: Collection[TopicPartition],
    found: dict[TopicPartition, PartitionAnswer],
) -> ClientError | None:
    """Put the answers of a response into `found`; returns the error of a partition, if any."""
    wanted, error = set(asked), None
    url = response.storage_url
    if url is not None and len(url) > URL_SIZE_MAX:
        raise MalformedBytes(f"the URL of an object store of {len(url)} characters")
    for topic in response.topics:
        for part in topic.partitions:
            name = TopicPartition(topic.name, part.partition_index)
            if name not in wanted:
                continue
            if part.error_code:
                error = broker_refused(
                    part.error_code, f"remote segments of {name}", part.error_message)
            else:
                found[name] = PartitionAnswer(topic.topic_id, url, part)
    return error


# -- segments to read


def _part(asked: Range, answer: PartitionAnswer) -> RemoteLogPart:
    told = answer.partition
    segments = tuple(_segments(asked, told))
    return RemoteLogPart(
        answer.topic_id, told.log_start_offset, told.local_start_offset, answer.store_url,
        segments, segments[-1].end if segments and not told.is_complete else -1,
        told.is_diskless)


def _segments(asked: Range, part: DescribedRemotePartition) -> Iterable[SegmentPlace]:
    """The segments of a response, checked (client.L1, client.L2)."""
    if len(part.segments) > SEGMENTS_MAX:
        raise MalformedBytes(f"{asked}: {len(part.segments)} remote segments; at most "
                             f"{SEGMENTS_MAX} were asked for")
    reached = asked.first
    for each in part.segments:
        yield _segment(asked, each, reached)
        reached = each.end_offset + 1


def _segment(asked: Range, given: DescribedRemoteSegment, reached: int) -> SegmentPlace:
    if not (0 <= given.start_offset <= reached <= given.end_offset < OFFSET_MAX
            and reached < asked.end and given.size >= 0):
        raise MalformedBytes(f"{asked}: a remote segment of offsets {given.start_offset} to "
                             f"{given.end_offset}, where one that holds {reached} was expected")
    custom = bytes(given.custom_metadata or b"")
    if len(custom) > CUSTOM_METADATA_SIZE_MAX:
        raise MalformedBytes(f"{asked}: a remote segment with too long metadata")
    return SegmentPlace(given.start_offset, given.end_offset + 1, given.size, given.segment_id,
                        custom)

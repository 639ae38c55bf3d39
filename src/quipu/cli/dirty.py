"""Dirty reads: one node's records of a topic, committed or not (`quipu consume --dirty`).

They are read from the first node of --bootstrap that responds, and from no other: two nodes may
have different ends.  An uncommitted record may still be lost, if the chain drops this node.
"""

import sys
from collections.abc import Callable, Iterator
from typing import Final

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message

from quipu.cli.cluster import unknown
from quipu.cli.errors import CommandFailed
from quipu.cli.positions import Position, resolve
from quipu.client.connection import BrokerConnection
from quipu.client.errors import code_name
from quipu.model.errors import Code, MalformedBytes
from quipu.wire.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from quipu.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from quipu.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from quipu.wire.record_batch import (
    BATCH_LENGTH_MIN,
    HEADER_SIZE,
    Record,
    TimestampType,
    body_crc,
    decode_records,
    parse_header,
)

DIRTY_READER: Final = -2  # sent as the replica id, to ask for a dirty read
FETCH_VERSION: Final = 12  # the last version that names topics instead of giving their ids
LIST_OFFSETS_VERSION: Final = 5
WAIT_MS: Final = 500
FETCH_SIZE_MAX: Final = 8 << 20
RECORDS_SIZE_MAX: Final = 256 << 20  # of one batch, decompressed: nodes accept no larger one
EARLIEST: Final = -2
LATEST: Final = -1
_TYPES: Final = {
    TimestampType.CREATE_TIME: TIMESTAMP_CREATE_TIME,
    TimestampType.LOG_APPEND_TIME: TIMESTAMP_LOG_APPEND_TIME,
}

Write = Callable[[Message], bytes]


class DirtyReader:
    """Reads partitions of one topic from one node."""

    def __init__(self, node: BrokerConnection, topic: str, wanted: list[int]) -> None:
        self._node = node
        self._topic = topic
        self._partitions = self._find_partitions(wanted)
        self._next: dict[int, int] = {}  # next offset of each partition that is not at its end
        self._ends: dict[int, int] = {}

    def run(
        self, first: Position | None, last: Position | None, write: Write, count_max: int | None
    ) -> None:
        """Write records until the count or every end is reached; for ever if there is neither."""
        self._seek(first or Position(after_start=0), last)
        out, left = sys.stdout.buffer, count_max
        while self._next and left != 0:
            for message in self._fetch():
                out.write(write(message))
                if left is not None:
                    left -= 1
                    if left == 0:
                        break
            out.flush()

    def _seek(self, first: Position, last: Position | None) -> None:
        starts, ends = self._offsets(EARLIEST), self._offsets(LATEST)
        self._next = self._resolve(first, starts, ends)
        if last is not None:
            self._ends = self._resolve(last, starts, ends)
            self._next = {index: offset for index, offset in self._next.items()
                          if offset < self._ends[index]}

    def _fetch(self) -> Iterator[Message]:
        parts = [FetchPartition(partition=index, fetch_offset=offset,
                                partition_max_bytes=FETCH_SIZE_MAX)
                 for index, offset in self._next.items()]
        request = FetchRequest(
            replica_id=DIRTY_READER, max_wait=WAIT_MS, min_bytes=1, max_bytes=FETCH_SIZE_MAX,
            topics=[FetchTopic(topic=self._topic, partitions=parts)])
        response = self._node.ask(request, FetchResponse, highest=FETCH_VERSION)
        self._check(response.error_code)
        for topic in response.responses:
            for part in topic.partitions:
                self._check(part.error_code, part.partition_index)
                yield from self._messages(part)
        for index, end in self._ends.items():
            if self._next.get(index, end) >= end:
                self._next.pop(index, None)

    def _messages(self, part: PartitionData) -> Iterator[Message]:
        data = part.records if part.records is not None else memoryview(b"")
        index = part.partition_index
        while len(data) > 0:
            if len(data) < HEADER_SIZE:
                return
            header = parse_header(data)
            if header.size > len(data):
                return
            if header.batch_length < BATCH_LENGTH_MIN:
                raise self._damaged(header.base_offset, index, "its length is impossible")
            self._check_crc(data[: header.size], index)
            for record in self._records(data[: header.size], index):
                if self._next[index] <= record.offset < self._ends.get(index, record.offset + 1):
                    self._next[index] = record.offset + 1
                    yield Message(
                        topic=self._topic, partition=index, offset=record.offset, key=record.key,
                        value=record.value, headers=list(record.headers),
                        timestamp=(_TYPES[header.timestamp_type], record.timestamp))
            self._next[index] = max(self._next[index], header.last_offset + 1)
            data = data[header.size :]

    def _records(self, batch: memoryview, index: int) -> Iterator[Record]:
        try:
            yield from decode_records(batch, size_max=RECORDS_SIZE_MAX)
        except MalformedBytes as error:
            raise self._damaged(parse_header(batch).base_offset, index, str(error)) from None

    def _check_crc(self, batch: memoryview, index: int) -> None:
        header = parse_header(batch)
        if body_crc(batch) != header.crc:
            raise self._damaged(header.base_offset, index, "its checksum is wrong")

    def _damaged(self, offset: int, index: int, why: str) -> CommandFailed:
        return CommandFailed(
            f"{self._node.address} sends a damaged batch of {self._topic}-{index} at offset "
            f"{offset}: {why}; see `quipu log show` on that node, and read from another one")

    # -- partitions and offsets

    def _find_partitions(self, wanted: list[int]) -> list[int]:
        names = [MetadataRequestTopic(name=self._topic)]
        request = MetadataRequest(topics=names, allow_auto_topic_creation=False)
        (found,) = self._node.ask(request, MetadataResponse).topics
        if found.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION:
            raise CommandFailed(unknown("topic", self._topic, ()))
        every = sorted(part.partition_index for part in found.partitions)
        for index in wanted:
            if index not in every:
                raise CommandFailed(
                    f"{self._topic} has partitions 0 to {len(every) - 1}, and no {index}")
        return sorted(set(wanted)) or every

    def _offsets(self, timestamp: int) -> dict[int, int]:
        parts = [ListOffsetsPartition(partition_index=index, timestamp=timestamp)
                 for index in self._partitions]
        request = ListOffsetsRequest(
            replica_id=DIRTY_READER,
            topics=[ListOffsetsTopic(name=self._topic, partitions=parts)])
        response = self._node.ask(request, ListOffsetsResponse, highest=LIST_OFFSETS_VERSION)
        (topic,) = response.topics
        for part in topic.partitions:
            self._check(part.error_code, part.partition_index)
        return {part.partition_index: part.offset for part in topic.partitions}

    def _resolve(
        self, position: Position, starts: dict[int, int], ends: dict[int, int]
    ) -> dict[int, int]:
        timed = {} if position.timestamp_ms is None else self._offsets(position.timestamp_ms)
        return {index: resolve(position, start=starts[index], end=max(starts[index], ends[index]),
                               timed=timed.get(index, -1))
                for index in self._partitions}

    def _check(self, code: int, index: int | None = None) -> None:
        if code != Code.NONE:
            what = self._topic if index is None else f"{self._topic}-{index}"
            hint = "; ask a node of its chain" if code in _ELSEWHERE else ""
            raise CommandFailed(
                f"{self._node.address} cannot show {what}: {code_name(code)}{hint}")


_ELSEWHERE: Final = (Code.NOT_LEADER_OR_FOLLOWER, Code.UNKNOWN_TOPIC_OR_PARTITION)

"""A broker in a thread, just real enough for the bench: batches in memory, one thread per peer."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any, cast
from uuid import UUID

from quipu.model.settings_types import Address
from quipu.wire.frame import RequestHeader, decode_request, encode_response
from quipu.wire.messages.k00_produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from quipu.wire.messages.k01_fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from quipu.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from quipu.wire.messages.k18_api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from quipu.wire.messages.k19_create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from quipu.wire.messages.k20_delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from quipu.wire.record_batch import check_batch
from quipu.wire.schema import Request, Response

VERSIONS = {0: (0, 13), 1: (4, 17), 3: (0, 13), 18: (0, 4), 19: (2, 7), 20: (1, 6)}


class Partition:
    def __init__(self) -> None:
        self.batches: list[tuple[int, bytes]] = []  # next offset, batch
        self.end = 0


class FakeBroker:
    """Answers what the bench asks; knobs make it fail or stall."""

    def __init__(self) -> None:
        self.versions = dict(VERSIONS)
        self.topics: dict[str, list[Partition]] = {}
        self.configs: dict[str, dict[str, str | None]] = {}
        self.produced = 0  # Produce requests answered
        self.produce_error = 0
        self.stall_at = -1  # before answering this Produce request ...
        self.stall_seconds = 0.0  # ... wait so long
        self.hang_up_at = -1
        self._changed = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.address = Address(*self._listener.getsockname())
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()
        self._peers: list[socket.socket] = []

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for peer in self._peers:
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
        for peer in self._peers:
            peer.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self._listener.accept()
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._peers.append(peer)
                thread = threading.Thread(target=self._serve, args=(peer,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, peer: socket.socket) -> None:
        stream = peer.makefile("rb")
        with contextlib.suppress(OSError), stream:
            while size := stream.read(4):
                frame = stream.read(int.from_bytes(size, "big"))
                header, request = decode_request(memoryview(frame))
                response = self._answer(header, request)
                if self.produced == self.hang_up_at:
                    peer.shutdown(socket.SHUT_RDWR)
                    return
                if response is not None:
                    version = header.api_version
                    peer.sendall(encode_response(header.correlation_id, response, version))

    def _answer(self, header: RequestHeader, request: Request) -> Response | None:
        answers: dict[type[Request], Any] = {
            ApiVersionsRequest: self._api_versions, MetadataRequest: self._metadata,
            CreateTopicsRequest: self._create, DeleteTopicsRequest: self._delete,
            ProduceRequest: self._produce, FetchRequest: self._fetch,
        }
        return cast("Response | None", answers[type(request)](request))

    def _api_versions(self, _request: ApiVersionsRequest) -> ApiVersionsResponse:
        keys = [ApiVersion(api_key=key, min_version=span[0], max_version=span[1])
                for key, span in self.versions.items()]
        return ApiVersionsResponse(api_keys=keys)

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        assert request.topics is not None
        topics = []
        for topic in request.topics:
            assert topic.name is not None
            partitions = self.topics.get(topic.name)
            parts = [MetadataResponsePartition(partition_index=each, leader_id=7)
                     for each in range(len(partitions or ()))]
            topics.append(MetadataResponseTopic(
                name=topic.name, error_code=0 if partitions else 3, partitions=parts))
        broker = MetadataResponseBroker(node_id=7, host="127.0.0.1", port=self.address.port)
        return MetadataResponse(brokers=[broker], topics=topics)

    def _create(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        results = []
        for topic in request.topics:
            self.topics[topic.name] = [Partition() for _ in range(topic.num_partitions)]
            self.configs[topic.name] = {each.name: each.value for each in topic.configs}
            results.append(CreatableTopicResult(name=topic.name, topic_id=UUID(int=1)))
        return CreateTopicsResponse(topics=results)

    def _delete(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        names = [each.name for each in request.topics]
        for name in names:
            del self.topics[name or ""]
        return DeleteTopicsResponse(responses=[DeletableTopicResult(name=name) for name in names])

    def _produce(self, request: ProduceRequest) -> ProduceResponse | None:
        (topic,) = request.topic_data
        (data,) = topic.partition_data
        assert data.records is not None
        header = check_batch(data.records, size_max=64 << 20)
        if self.produced == self.stall_at:
            time.sleep(self.stall_seconds)
        with self._changed:
            self.produced += 1
            partition = self.topics[topic.name][data.index]
            base_offset = partition.end
            partition.end += header.last_offset_delta + 1
            batch = base_offset.to_bytes(8, "big") + bytes(data.records[8:])
            partition.batches.append((partition.end, batch))
            self._changed.notify_all()
        if request.acks == 0:
            return None
        part = PartitionProduceResponse(
            index=data.index, error_code=self.produce_error, base_offset=base_offset,
            log_start_offset=0, error_message="as told" if self.produce_error else None)
        return ProduceResponse(responses=[TopicProduceResponse(
            name=topic.name, partition_responses=[part])])

    def _fetch(self, request: FetchRequest) -> FetchResponse:
        (topic,) = request.topics
        (wanted,) = topic.partitions
        partition = self.topics[topic.topic][wanted.partition]
        with self._changed:
            self._changed.wait_for(
                lambda: partition.end > wanted.fetch_offset, request.max_wait / 1000)
            records = b""
            for end, batch in partition.batches:
                if end > wanted.fetch_offset:
                    if records and len(records) + len(batch) > wanted.partition_max_bytes:
                        break
                    records += batch
            end = partition.end
        part = PartitionData(
            partition_index=wanted.partition, high_watermark=end, last_stable_offset=end,
            log_start_offset=0, aborted_transactions=[], records=memoryview(records))
        return FetchResponse(responses=[FetchableTopicResponse(
            topic=topic.topic, partitions=[part])])


@contextlib.contextmanager
def fake_broker() -> Iterator[FakeBroker]:
    broker = FakeBroker()
    try:
        yield broker
    finally:
        broker.close()

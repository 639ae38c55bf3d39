"""A broker that says what a test tells it to: Kafka's frames, no log behind them.

    with FakeKafka() as fake:
        fake.answers[3] = lambda request, version: MetadataResponse(...)
        Cluster(client_settings({"bootstrap.servers": fake.bootstrap}))

An answer may be a message, `bytes` to send as they are, or None to close the connection.
"""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from quipu.model.errors import Code
from quipu.wire.frame import decode_request_header, encode_response
from quipu.wire.messages import OWN_KEY_FIRST, REQUESTS
from quipu.wire.messages.k01_fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from quipu.wire.messages.k02_list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from quipu.wire.messages.k03_metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from quipu.wire.messages.k18_api_versions import ApiVersion, ApiVersionsResponse
from quipu.wire.schema import Request, Response

Answer = Callable[[Any, int], Response | bytes | None]
TOPIC_ID = UUID(int=7)


class FakeKafka:
    """A broker that responds as a test says; every connection has a thread of its own."""

    def __init__(
        self, *, versions: dict[int, tuple[int, int]] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.versions = versions if versions is not None else {
            key: (kind.VERSIONS[0], kind.VERSIONS[-1]) for key, kind in REQUESTS.items()}
        self.answers: dict[int, Answer] = {18: self._api_versions}
        self.asked: list[tuple[Request, int]] = []  # requests and their versions
        self.accepted = 0  # connections
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.bootstrap = f"localhost:{self.port}"
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()

    def hang_up(self) -> None:
        """Close every connection."""
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def serve_log(
        self, topic: str, batches: Sequence[bytes], *, start: int = 0, end: int,
        aborted: Sequence[tuple[int, int]] = (),
    ) -> None:
        """One topic with one partition, whose whole log is `batches`."""
        self.answers[3] = lambda _request, _version: self.metadata(topic)
        self.answers[2] = lambda request, _version: _offsets(request, start, end)
        self.answers[1] = lambda request, _version: fetched(
            request, topic, b"".join(batches), start=start, end=end, aborted=aborted)

    def metadata(
        self, topic: str, *, leader: int = 0, topic_id: UUID = TOPIC_ID, partitions: int = 1,
    ) -> MetadataResponse:
        """This broker alone, which is number 0."""
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=0, host="localhost", port=self.port)],
            topics=[MetadataResponseTopic(name=topic, topic_id=topic_id, partitions=[
                MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=1)
                for index in range(partitions)])])

    def _api_versions(self, _request: Request, version: int) -> Response | bytes:
        keys = [ApiVersion(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in self.versions.items()
                if key < OWN_KEY_FIRST or key in self.answers]
        if version > self.versions[18][1]:
            return ApiVersionsResponse(
                error_code=Code.UNSUPPORTED_VERSION, api_keys=keys).encode(0)
        return ApiVersionsResponse(api_keys=keys)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                plain, _ = self._listener.accept()
                self.accepted += 1
                threading.Thread(target=self._serve, args=(plain,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        self._sockets.append(plain)
        with contextlib.suppress(OSError, EOFError), plain:
            there = plain if self._tls is None else self._tls.wrap_socket(plain, server_side=True)
            with there:
                while self._answer(there):
                    pass

    def _answer(self, there: socket.socket) -> bool:
        frame = memoryview(_exactly(there, int.from_bytes(_exactly(there, 4), "big")))
        header, position = decode_request_header(frame)
        if header.api_key == 18 and header.api_version > self.versions[18][1]:
            request: Request = REQUESTS[18]()
        else:
            request = REQUESTS[header.api_key].decode(frame[position:], header.api_version)
        self.asked.append((request, header.api_version))
        said = self.answers[header.api_key](request, header.api_version)
        if said is None:
            return False
        if isinstance(said, bytes):
            body = header.correlation_id.to_bytes(4, "big") + said
            there.sendall(len(body).to_bytes(4, "big") + body)
        else:
            there.sendall(encode_response(header.correlation_id, said, header.api_version))
        return True


def fetched(
    request: FetchRequest, topic: str, records: bytes = b"", *, start: int, end: int,
    aborted: Sequence[tuple[int, int]] = (), **values: Any,
) -> FetchResponse:
    """An answer for the first partition that was asked for."""
    asked = request.topics[0]
    offset = asked.partitions[0].fetch_offset
    part: dict[str, Any] = {
        "partition_index": asked.partitions[0].partition, "high_watermark": end,
        "last_stable_offset": end, "log_start_offset": start, **values}
    if "error_code" not in part and not start <= offset <= end:
        part["error_code"] = Code.OFFSET_OUT_OF_RANGE
    elif "error_code" not in part:
        part["records"] = memoryview(records if offset < end else b"")
        part["aborted_transactions"] = [
            AbortedTransaction(producer_id=producer, first_offset=first)
            for producer, first in aborted]
    return FetchResponse(responses=[FetchableTopicResponse(
        topic=topic, topic_id=asked.topic_id, partitions=[PartitionData(**part)])])


def _offsets(request: ListOffsetsRequest, start: int, end: int) -> ListOffsetsResponse:
    return ListOffsetsResponse(topics=[
        ListOffsetsTopicResponse(name=topic.name, partitions=[
            ListOffsetsPartitionResponse(
                partition_index=each.partition_index,
                offset=start if each.timestamp == -2 else end)
            for each in topic.partitions])
        for topic in request.topics])


def _exactly(there: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = there.recv(size - len(parts))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)

"""The slow side of the load generator: what it asks a broker before and after the load.

One blocking connection that negotiates versions, makes and removes the topic of a run, and finds
out which broker leads which partition.  Works with any Kafka broker from 2.8 on.

Not here: the load itself (frames.py, closed_loop.py, open_loop.py, tail.py).
"""

import socket
import time
from collections.abc import Mapping
from typing import Final, NamedTuple, Self, cast
from uuid import UUID

from quipu.model.errors import Code, QuipuError
from quipu.wire.frame import decode_response, encode_request
from quipu.wire.messages import RESPONSES
from quipu.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from quipu.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from quipu.wire.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from quipu.wire.messages.k20_delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from quipu.wire.schema import Request, Response

CLIENT_ID: Final = "quipu-bench"
TIMEOUT_SECONDS: Final = 30.0
RESPONSE_SIZE_MAX: Final = 64 << 20
PRODUCE_VERSIONS: Final = range(9, 13)  # flexible, with topic names
FETCH_VERSION: Final = 12
LEADER_WAIT_TRIES: Final = 100


class BenchError(QuipuError):
    """A run that cannot be made, or a broker that answered something unexpected."""


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """HOST:PORT; raises `BenchError` for anything else."""
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise BenchError(f"--bootstrap {text!r} is not HOST:PORT, for example localhost:9092")
    return Address(host.strip("[]"), int(port))


class Control:
    """One blocking connection to a broker."""

    def __init__(self, address: Address) -> None:
        self.address = address
        try:
            self._socket = socket.create_connection(address, TIMEOUT_SECONDS)
        except OSError as error:
            raise BenchError(
                f"no broker at {address}: {error.strerror or error}; start one with "
                "`quipu start`, or leave --bootstrap out to measure a temporary node"
            ) from error
        self._correlation_id = 0
        self.versions = self._negotiate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, request: Request, newest: int | None = None) -> Response:
        """Send a request in the newest version (up to `newest`) that both sides know; wait."""
        return self._ask(request, self.version(request, newest))

    def version(self, request: Request | type[Request], newest: int | None = None) -> int:
        """The newest version of a request, at most `newest`, that both sides know."""
        theirs = self.versions.get(request.KEY, range(0))
        ours = range(request.VERSIONS.start, min(request.VERSIONS.stop, (newest or 1 << 15) + 1))
        common = range(max(theirs.start, ours.start), min(theirs.stop, ours.stop))
        if not common:
            raise BenchError(
                f"the broker at {self.address} speaks {_span(theirs)} of API key {request.KEY}; "
                f"this generator needs {_span(ours)} (Kafka 2.8 or later)"
            )
        return common[-1]

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Make a topic with the broker's own number of replicas; wait until all have leaders."""
        settings = [CreatableTopicConfig(name=name, value=value) for name, value in configs.items()]
        new = CreatableTopic(
            name=topic, num_partitions=partitions, replication_factor=-1, configs=settings
        )
        answer = cast("CreateTopicsResponse", self.ask(CreateTopicsRequest(topics=[new])))
        (made,) = answer.topics
        if made.error_code != Code.NONE:
            raise BenchError(
                f"cannot create topic {topic}: {_code(made.error_code)} {made.error_message or ''}"
            )
        self.leaders(topic, partitions)

    def delete_topic(self, topic: str) -> None:
        """Remove a topic; what it held is gone."""
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=topic, topic_id=UUID(int=0))],
            topic_names=[topic],
            timeout=int(TIMEOUT_SECONDS * 1000),
        )
        answer = cast("DeleteTopicsResponse", self.ask(request))
        (gone,) = answer.responses
        if gone.error_code != Code.NONE:
            raise BenchError(f"cannot delete topic {topic}: {_code(gone.error_code)}")

    def leaders(self, topic: str, partitions: int | None = None) -> list[Address]:
        """The leader of each partition, by partition; waits for `partitions` of them."""
        for _ in range(LEADER_WAIT_TRIES):
            found = self._find_leaders(topic)
            if found and len(found) == (partitions or len(found)):
                return found
            time.sleep(0.05)
        raise BenchError(f"topic {topic} has no leaders at {self.address}; does it exist?")

    def _find_leaders(self, topic: str) -> list[Address]:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        answer = cast("MetadataResponse", self.ask(request))
        brokers = {each.node_id: Address(each.host, each.port) for each in answer.brokers}
        (found,) = answer.topics
        if found.error_code != Code.NONE:
            return []
        partitions = sorted(found.partitions, key=lambda each: each.partition_index)
        leaders = [brokers.get(each.leader_id) for each in partitions]
        return [leader for leader in leaders if leader is not None]

    def _negotiate(self) -> dict[int, range]:
        answer = self._api_versions(3)
        if answer.error_code == Code.UNSUPPORTED_VERSION:
            answer = self._api_versions(0)
        if answer.error_code != Code.NONE:
            raise BenchError(f"{self.address} refused ApiVersions: {_code(answer.error_code)}")
        return {
            each.api_key: range(each.min_version, each.max_version + 1) for each in answer.api_keys
        }

    def _api_versions(self, version: int) -> ApiVersionsResponse:
        request = ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version="1")
        return cast("ApiVersionsResponse", self._ask(request, version))

    def _ask(self, request: Request, version: int) -> Response:
        self._correlation_id += 1
        try:
            self._socket.sendall(
                encode_request(
                    request, version, correlation_id=self._correlation_id, client_id=CLIENT_ID
                )
            )
            frame = self._receive_frame()
        except OSError as error:
            raise BenchError(f"{self.address} did not answer: {error}") from error
        if request.KEY == ApiVersionsRequest.KEY and frame[4:6] == b"\0\x23":
            version = 0  # UNSUPPORTED_VERSION is always told in the oldest form
        assert request.KEY in RESPONSES, request.KEY
        _, answer = decode_response(memoryview(frame), request.KEY, version)
        return answer

    def _receive_frame(self) -> bytes:
        size = int.from_bytes(self._receive(4), "big", signed=True)
        if not 0 <= size <= RESPONSE_SIZE_MAX:
            raise BenchError(f"{self.address} does not speak Kafka: a response of {size} bytes")
        return self._receive(size)

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise BenchError(f"{self.address} closed the connection")
            data += part
        return bytes(data)


def _code(number: int) -> str:
    try:
        return Code(number).name
    except ValueError:
        return f"error {number}"


def _span(versions: range) -> str:
    return f"versions {versions.start} to {versions.stop - 1}" if versions else "no version"

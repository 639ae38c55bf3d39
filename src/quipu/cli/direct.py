"""Talking to Quipu without librdkafka: for requests that are our own, and for those that a stock
client would not make.

A request goes to any node of the cluster; a node that is not the right one passes it on.  Here it
only has to be brought to one that lives: those of --bootstrap first, then those they tell about.
"""

import socket
import time
from collections.abc import Iterator
from struct import Struct
from typing import Final, Self, cast

from quipu.cli.errors import CommandFailed
from quipu.cli.kafka import CONNECT_SECONDS_MAX, split_address
from quipu.model.errors import Code, QuipuError
from quipu.model.settings_types import Address
from quipu.wire.frame import decode_response, encode_request
from quipu.wire.messages.k03_metadata import MetadataRequest, MetadataResponse
from quipu.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from quipu.wire.schema import Request, Response

CLIENT_ID: Final = "quipu-cli"
ANSWER_SECONDS_MAX: Final = 35.0  # more than a node takes to find out that it cannot
ASK_SECONDS_MAX: Final = 30.0
ANSWER_SIZE_MAX: Final = 256 << 20
RETRY_SECONDS: Final = 0.2
METADATA_VERSION: Final = 12
TRANSIENT: Final = frozenset({  # of a cluster that is about to be well
    Code.NOT_CONTROLLER, Code.REQUEST_TIMED_OUT,
    Code.LEADER_NOT_AVAILABLE, Code.NETWORK_EXCEPTION,
})
_SIZE: Final = Struct(">i")


class NoAnswer(CommandFailed):
    """A node is not there, or went away before it answered."""


class Connection:
    """One node; requests are answered in order, one at a time."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._correlation_id = 0
        try:
            self._socket = socket.create_connection(address, CONNECT_SECONDS_MAX)
        except OSError as error:
            raise NoAnswer(f"{address} ({error.strerror or error})") from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(ANSWER_SECONDS_MAX)

    def ask(self, request: Request, version: int) -> Response:
        """Send a request and wait for its answer."""
        self._correlation_id += 1
        frame = encode_request(
            request, version, correlation_id=self._correlation_id, client_id=CLIENT_ID)
        try:
            self._socket.sendall(frame)
            (size,) = _SIZE.unpack(self._receive(_SIZE.size))
            if not 0 <= size <= ANSWER_SIZE_MAX:
                raise NoAnswer(f"{self.address} (does not answer as a Kafka broker)")
            answer = memoryview(self._receive(size))
        except OSError as error:
            raise NoAnswer(f"{self.address} ({error.strerror or error})") from None
        try:
            _, response = decode_response(answer, request.KEY, version)
        except QuipuError as error:
            raise NoAnswer(f"{self.address} (its answer cannot be read: {error})") from None
        return response

    def serves(self, request: Request, version: int) -> bool:
        """Does the node say that it knows this request?"""
        answer = cast("ApiVersionsResponse", self.ask(ApiVersionsRequest(), 0))
        return any(each.api_key == request.KEY and each.min_version <= version <= each.max_version
                   for each in answer.api_keys)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _receive(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(min(size - len(parts), 1 << 20))
            if not part:
                raise NoAnswer(f"{self.address} (closed the connection)")
            parts += part
        return bytes(parts)


def ask(
    bootstrap: str, request: Request, version: int = 0, *, doubts: list[int] | None = None
) -> Response:
    """The answer of the first node that has one; asks on while the cluster is not well.

    What the answer says is the caller's to look at: only `TRANSIENT` errors are dealt with here.
    They are noted in `doubts`, since what was asked for may have been done all the same.
    """
    deadline = time.monotonic() + ASK_SECONDS_MAX
    while True:
        problems: list[str] = []
        answer: Response | None = None
        for address in _nodes(bootstrap):
            try:
                with Connection(address) as node:
                    _check_served(node, request, version)
                    answer = node.ask(request, version)
            except NoAnswer as error:
                problems.append(str(error))
                continue
            code = getattr(answer, "error_code", Code.NONE)
            if code not in TRANSIENT:
                return answer
            if doubts is not None:
                doubts.append(code)
        if answer is None:
            raise CommandFailed(
                f"no node answers at {', '.join(dict.fromkeys(problems))}; start one with `quipu "
                "start`, or give the address of a running one with --bootstrap HOST:PORT")
        if time.monotonic() > deadline:
            return answer
        time.sleep(RETRY_SECONDS)


def connect(bootstrap: str) -> Connection:
    """The first node of --bootstrap that answers."""
    problems = []
    for address in _given(bootstrap):
        try:
            return Connection(address)
        except NoAnswer as error:
            problems.append(str(error))
    raise CommandFailed(
        f"no broker answers at {', '.join(problems)}; start one with `quipu start`, "
        "or give the address of a running one with --bootstrap HOST:PORT")


def code_name(code: int) -> str:
    """Kafka's name of an error code."""
    return Code(code).name if code in Code.__members__.values() else f"error {code}"


def _check_served(node: Connection, request: Request, version: int) -> None:
    if not node.serves(request, version):
        raise CommandFailed(
            f"{node.address} does not know this request (API key {request.KEY}): it is another "
            "Kafka broker, or an older Quipu")


def _nodes(bootstrap: str) -> Iterator[Address]:
    """Where to ask: the addresses given, then those of other nodes that one of them tells."""
    given = _given(bootstrap)
    yield from given
    for address in given:
        try:
            with Connection(address) as node:
                request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
                answer = cast("MetadataResponse", node.ask(request, METADATA_VERSION))
        except NoAnswer:
            continue
        others = [Address(each.host, each.port) for each in answer.brokers]
        yield from (other for other in others if other not in given)
        return


def _given(bootstrap: str) -> list[Address]:
    return [Address(*split_address(item.strip())) for item in bootstrap.split(",")]

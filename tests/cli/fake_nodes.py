"""Nodes that only know about chains: enough for `quipu chain`, and wrong when told to be."""

import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from quipu.model.chains import MemberState, member_key
from quipu.model.errors import Code, QuipuError, RequestError
from quipu.wire.frame import decode_request, encode_response
from quipu.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
)
from quipu.wire.messages.k18_api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from quipu.wire.messages.k10000_describe_chains import (
    DescribeChainsRequest,
    DescribeChainsResponse,
    DescribedChain,
    DescribedChainMember,
)
from quipu.wire.messages.k10001_create_chain import CreateChainRequest, CreateChainResponse
from quipu.wire.messages.k10002_extend_chain import ExtendChainRequest, ExtendChainResponse
from quipu.wire.schema import Request, Response

SERVED_KEYS = (3, 18, 55, 64, 81, 10_000, 10_001, 10_002, 10_007)


class Fake:
    """A cluster's chains, and the nodes that answer for it."""

    def __init__(self) -> None:
        self.registered: list[str] = ["a-0", "a-2", "a-10", "a-3"]
        self.chains: dict[str, DescribedChain] = {}
        self.states: dict[str, MemberState] = {}  # of members that do not serve
        self.keys: tuple[int, ...] = SERVED_KEYS
        self.others: list[tuple[str, int]] = []  # nodes that Metadata tells about
        self.asked: list[Request] = []
        self.trouble: list[Code] = []  # answered first, one each
        self.scripted: dict[int, list[Response]] = {}  # by API key, one each; the last stays
        self.on_describe: Callable[[], None] = lambda: None

    def answer(self, request: Request) -> Response:
        if isinstance(request, ApiVersionsRequest):
            return ApiVersionsResponse(api_keys=[
                ApiVersion(api_key=key, min_version=0, max_version=0) for key in self.keys])
        if isinstance(request, MetadataRequest):
            return MetadataResponse(brokers=[
                MetadataResponseBroker(node_id=index, host=host, port=port)
                for index, (host, port) in enumerate(self.others)])
        self.asked.append(request)
        if (script := self.scripted.get(request.KEY)) is not None:
            return script.pop(0) if len(script) > 1 else script[0]
        try:
            if self.trouble:
                raise RequestError("trouble", code=self.trouble.pop(0))
            return self._decide(request)
        except QuipuError as error:
            kind = {DescribeChainsRequest: DescribeChainsResponse,
                    CreateChainRequest: CreateChainResponse,
                    ExtendChainRequest: ExtendChainResponse}[type(request)]
            return kind(error_code=error.code, error_message=str(error))

    def _decide(self, request: Request) -> Response:
        if isinstance(request, DescribeChainsRequest):
            self.on_describe()
            names = self.chains if request.names is None else request.names
            return DescribeChainsResponse(
                chains=[self._now(name) for name in names if name in self.chains])
        if isinstance(request, CreateChainRequest):
            if request.name in self.chains:
                raise RequestError("it exists", code=Code.DUPLICATE_RESOURCE)
            nodes = request.node_names or [
                name for name in self.registered if member_key(name)[0] == request.name]
            self._join(request.name, nodes)
            return CreateChainResponse(chain=self._now(request.name))
        assert isinstance(request, ExtendChainRequest)
        self._join(request.name, [request.node_name])
        return ExtendChainResponse(chain=self._now(request.name))

    def _join(self, name: str, nodes: list[str]) -> None:
        for node in nodes:
            if node not in self.registered:
                raise RequestError(f"no node {node}", code=Code.BROKER_ID_NOT_REGISTERED)
        chain = self.chains.setdefault(name, DescribedChain(name=name, epoch=3, topic_count=1))
        for node in sorted(nodes, key=member_key):
            chain.members.append(DescribedChainMember(
                node_id=1 + member_key(node)[1], name=node, host="127.0.0.1", port=9092,
                rack="r1"))

    def _now(self, name: str) -> DescribedChain:
        chain = self.chains[name]
        for member in chain.members:
            member.state = self.states.get(member.name, MemberState.SERVING)
        return chain


@contextmanager
def listening(fake: Fake) -> Iterator[str]:
    """A node that answers for `fake`; gives its address."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while head := self.rfile.read(4):
                frame = memoryview(self.rfile.read(int.from_bytes(head, "big")))
                header, request = decode_request(frame)
                answer = encode_response(
                    header.correlation_id, fake.answer(request), header.api_version)
                self.wfile.write(answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()

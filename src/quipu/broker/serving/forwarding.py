"""Forwards Kafka requests that only the controller can carry out, from any node to the controller.

Such a request goes to the controller in an envelope (KIP-590), also if this node is the controller:
there is one way (cluster/controller_channel.py).  The client gets the controller's response after
this node has applied the decision, so its next request to this node sees the effect.

    forward             send a client's request to the controller
    request_controller  send a request of this node's own to the controller
    serve               handle the requests in envelopes, while this node is the controller

Not here: which requests these are (`ON_CONTROLLER` of the handlers).
"""

import inspect
from typing import Any, Final, NamedTuple

from quipu.broker import handlers
from quipu.broker.cluster.requests import EnvelopeRequest, EnvelopeResponse
from quipu.broker.groups.limits import PROTOCOL_COUNT_MAX, member_size_max
from quipu.broker.serving.context import Broker, Context
from quipu.broker.serving.response_budget import ResponseBudget
from quipu.model.errors import Code, QuipuError, RequestError, TooManyElements
from quipu.model.ids import NodeId
from quipu.model.listeners import DEFAULT, ClientListener, SecurityProtocol
from quipu.model.principals import ANONYMOUS, Principal
from quipu.wire.duplicates import merge_duplicates
from quipu.wire.messages import REQUESTS, RESPONSES
from quipu.wire.schema import Request, Response

TIMEOUT_SECONDS: Final = 20.0  # if the request has no timeout; clients wait 30 s by default
# CreateTopics, DeleteTopics, CreatePartitions, ElectLeaders, AlterPartitionReassignments and
# ListPartitionReassignments: with a time limit of 0 nothing is done, as in Kafka.
_TIMED: Final = frozenset({19, 20, 37, 43, 45})
JOIN_GROUP: Final = 11
# A request with more elements is refused before it is decoded; the group itself refuses one with
# more than PROTOCOL_COUNT_MAX.
JOIN_ELEMENTS_MAX: Final = 2 * PROTOCOL_COUNT_MAX
JOIN_REST_SIZE: Final = 64 * 1024  # bytes of a JoinGroup request besides the member's metadata
# CreateTopics, DeleteTopics, AlterConfigs, CreatePartitions, IncrementalAlterConfigs and
# AlterPartitionReassignments refuse duplicates, as Kafka does, and so do quotas and SCRAM (48-51);
# JoinGroup, LeaveGroup and SyncGroup name members one by one; ACLs (30, 31), ElectLeaders,
# DescribeTransactions, ShareGroupDescribe and StreamsGroupDescribe are answered element by element,
# and so are commits and deletions of offsets (8, 47), coordinators (10) and epochs (23).
# ListOffsets refuses them.  What is costly to describe is described once: OffsetFetch,
# DescribeGroups, DescribeConfigs, DescribeProducers.
_DUPLICATES_STAY: Final = frozenset({
    2, 8, 10, 11, 13, 14, 19, 20, 23, 30, 31, 33, 37, 43, 44, 45, 47, 48, 49, 50, 51, 65, 77, 89})


class ClientRequest(NamedTuple):
    """A client's request: decoded, and as the bytes that came."""

    request: Request
    body: bytes  # empty if the request is never forwarded
    context: Context


class DecodedBody(bytes):
    """The bytes of a request, with the decoded request, so that this node decodes it once."""

    request: Request


class ForwardedResponse(NamedTuple):
    """The controller's response, encoded in the version of the request."""

    body: bytes


def decode_request(
    broker: Broker, api_key: int, body: memoryview | bytes, version: int
) -> Request:
    """The request in `body`, without the duplicates in its arrays.

    Bytes after the request are ignored, as Kafka does: librdkafka sends three of them when it asks
    for the metadata of all topics in a flexible version.
    """
    elements_max = broker.settings.max_request_elements
    if api_key == JOIN_GROUP:
        elements_max = min(elements_max, JOIN_ELEMENTS_MAX)
        size_max = member_size_max(broker.settings) + JOIN_REST_SIZE
        if len(body) > size_max:
            raise TooManyElements(f"a JoinGroup request of {len(body)} bytes; at most {size_max} "
                                  "are allowed, because the metadata of a member is bounded "
                                  "(group.max.bytes)")
    request, _ = REQUESTS[api_key].decode_prefix(body, version, elements_max=elements_max)
    if api_key not in _DUPLICATES_STAY:
        merge_duplicates(request)
    return request


async def forward(broker: Broker, client_request: ClientRequest) -> Response | ForwardedResponse:
    """The controller's response; raises an error for which the response has no field."""
    request, context = client_request.request, client_request.context
    timeout_seconds = _timeout_seconds(broker, request)
    try:
        _check_timeout(request)
        answered = await _handle_here(broker, request, context, timeout_seconds)
        if answered is not None:
            return answered
        body = DecodedBody(client_request.body)
        body.request = request
        return await _send(broker, request.KEY, body, context, timeout_seconds=timeout_seconds)
    except QuipuError as error:
        if handlers.refusal(request.KEY) is None:
            raise
        response = handlers.refused(request, context.api_version, error)
        if response is None:
            raise
        return response


async def _handle_here(
    broker: Broker, request: Request, context: Context, timeout_seconds: float
) -> Response | None:
    """The response, if this node carries out a part of the request; see handlers/__init__.py."""
    handle_here = handlers.here_handler(request.KEY)
    if handle_here is None:
        return None
    return await handle_here(broker, request, lambda rest: request_controller(
        broker, rest, context, timeout_seconds=timeout_seconds))


async def request_controller(
    broker: Broker, request: Request, context: Context, *, timeout_seconds: float
) -> Response:
    """The controller's response to a request that this node makes for a client.

    `context` is the client's, with the version in which `request` is sent.
    """
    version = context.api_version
    response = await _send(broker, request.KEY, request.encode(version), context,
                           timeout_seconds=timeout_seconds)
    return RESPONSES[request.KEY].decode(response.body, version)


async def _send(
    broker: Broker, api_key: int, body: bytes, context: Context, *, timeout_seconds: float
) -> ForwardedResponse:
    response = await broker.cluster.ask_controller(
        EnvelopeRequest(
            api_key=api_key, api_version=context.api_version, client_id=context.client_id,
            client_host=context.client_host, body=body, listener=context.listener.name,
            security_protocol=context.listener.protocol,
            principal_type=context.principal.type, principal_name=context.principal.name,
            request_id=broker.rng.uuid()),
        EnvelopeResponse, timeout_seconds=timeout_seconds)
    return ForwardedResponse(response.body)


def _check_timeout(request: Request) -> None:
    """Raise for a request that must not take any time: as in Kafka, nothing is done."""
    if request.KEY in _TIMED and getattr(request, "timeout", 0) <= 0 and _has_elements(request):
        raise RequestError("the request's timeout is not above 0 ms, so it was not begun",
                           code=Code.REQUEST_TIMED_OUT)


def _has_elements(request: Request) -> bool:
    """Whether the request names anything: a response without parts has no room for an error."""
    return any(getattr(request, name) for name, field in type(request).FIELDS.items()
               if field.is_array)


def _timeout_seconds(broker: Broker, request: Request) -> float:
    timeout_ms = getattr(request, "timeout", 0)
    if timeout_ms <= 0:
        return TIMEOUT_SECONDS
    return min(timeout_ms, broker.settings.request_max_wait_ms) / 1000


def _listener_of(envelope: EnvelopeRequest) -> ClientListener:
    """The listener that the client connected to; nodes of earlier versions have only PLAINTEXT."""
    if not envelope.listener:
        return DEFAULT
    try:
        return ClientListener(envelope.listener, SecurityProtocol(envelope.security_protocol))
    except ValueError:
        raise RequestError(
            f"security protocol {envelope.security_protocol[:40]!r} is not known here: is this "
            "node of an older version?", code=Code.UNSUPPORTED_VERSION) from None


def _principal_of(envelope: EnvelopeRequest) -> Principal:
    """The client's principal; nodes of earlier versions do not send one."""
    if not envelope.principal_type:
        return ANONYMOUS
    return Principal(envelope.principal_type, envelope.principal_name)


def serve(broker: Broker) -> None:
    """Handle the envelopes of all nodes, this one included, while it is the controller."""

    async def open_envelope(sender: NodeId, envelope: EnvelopeRequest) -> EnvelopeResponse:
        del sender
        key, version = envelope.api_key, envelope.api_version
        served = handlers.SUPPORTED.get(key)
        if served is None or not served[0] <= version <= served[1] or not (
                handlers.is_on_controller(key)):
            raise RequestError(f"api {key} version {version} cannot be forwarded to this node",
                               code=Code.UNSUPPORTED_VERSION)
        size_max = broker.settings.max_request_bytes
        if len(envelope.body) > size_max:
            raise RequestError(f"{len(envelope.body)} bytes; at most {size_max} are allowed "
                               "(max.request.bytes)", code=Code.INVALID_REQUEST)
        listener, principal = _listener_of(envelope), _principal_of(envelope)
        body = envelope.body
        request = (body.request if isinstance(body, DecodedBody)
                   else decode_request(broker, key, body, version))
        budget = ResponseBudget(broker.response_budgets, RESPONSES[key], version)
        context = Context(version, 0, envelope.client_id, envelope.client_host, budget,
                          listener, principal, envelope.request_id)
        try:
            handled: Any = handlers.load(key)(broker, request, context)
            response: Response = await handled if inspect.isawaitable(handled) else handled
            return EnvelopeResponse(body=response.encode(version))
        finally:
            budget.release()

    broker.cluster.serve_requests(EnvelopeRequest, open_envelope)

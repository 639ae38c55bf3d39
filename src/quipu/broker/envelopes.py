"""Requests of clients that only the controller can answer, whichever node they reach.

A node that is not the controller passes such a request on, whole, and gives the client the
controller's answer once it has applied what was decided: who asks this node next finds it.

Not here: the way to the controller (cluster/link), which requests these are (`ON_CONTROLLER` of
the handlers).
"""

import inspect
from typing import Any, Final, NamedTuple

from quipu.broker import handlers
from quipu.broker.answers import Answer
from quipu.broker.cluster.requests import Envelope, EnvelopeAnswer
from quipu.broker.context import Broker, Context
from quipu.broker.groups.limits import PROTOCOL_COUNT_MAX, member_size_max
from quipu.model.errors import Code, QuipuError, RequestError, TooManyElements
from quipu.model.ids import NodeId
from quipu.wire.duplicates import merge_duplicates
from quipu.wire.messages import REQUESTS, RESPONSES
from quipu.wire.schema import Request, Response

TIMEOUT_SECONDS: Final = 20.0  # where the client does not say; it may wait 30
# CreateTopics, DeleteTopics, AlterConfigs, CreatePartitions, IncrementalAlterConfigs and
# AlterPartitionReassignments refuse what is named twice, as Kafka does; JoinGroup, LeaveGroup and
# SyncGroup speak of members one by one.
JOIN_GROUP: Final = 11
# What no member can be is not decoded; what is a little more is told so by the group.
JOIN_ELEMENTS_MAX: Final = 2 * PROTOCOL_COUNT_MAX
JOIN_REST_SIZE: Final = 64 * 1024  # of a request to join, besides the metadata
_DUPLICATES_STAY: Final = frozenset({11, 13, 14, 19, 20, 33, 37, 44, 45})


class Asked(NamedTuple):
    """A client's request, as it was understood and as it came."""

    request: Request
    body: bytes  # empty where it is never passed on
    context: Context


class PassedOn(NamedTuple):
    """The controller's answer as it came from there, encoded in the version of the request."""

    body: bytes


def understood(
    broker: Broker, api_key: int, body: memoryview | bytes, version: int
) -> Request:
    """The request in `body`; what it asks for several times, it asks for once.

    Bytes after the request are ignored, as Kafka does: librdkafka sends three of them when it asks
    for the metadata of all topics in a flexible version.
    """
    elements_max = broker.settings.max_request_elements
    if api_key == JOIN_GROUP:
        elements_max = min(elements_max, JOIN_ELEMENTS_MAX)
        size_max = member_size_max(broker.settings) + JOIN_REST_SIZE
        if len(body) > size_max:
            raise TooManyElements(f"a request to join of {len(body)} bytes; at most {size_max} are "
                                  "taken, for the metadata of a member is bounded "
                                  "(group.max.bytes)")
    request, _ = REQUESTS[api_key].decode_prefix(body, version, elements_max=elements_max)
    if api_key not in _DUPLICATES_STAY:
        merge_duplicates(request)
    return request


async def carry(broker: Broker, asked: Asked) -> Response | PassedOn:
    """The controller's answer; an error that no part of the answer can tell of is raised."""
    try:
        return await _answered(broker, asked)
    except QuipuError as error:
        if handlers.refusal(asked.request.KEY) is None:
            raise
        answer = handlers.refused(asked.request, asked.context.api_version, error)
        if answer is None:
            raise
        return answer


async def _answered(broker: Broker, asked: Asked) -> Response | PassedOn:
    if broker.cluster.is_controller:
        try:
            return await _handled(broker, asked.request, asked.context)
        except QuipuError as error:
            if error.code is not Code.NOT_CONTROLLER:
                raise  # else it was deposed meanwhile: whoever is the controller now shall answer
    key, version = asked.request.KEY, asked.context.api_version
    answer = await broker.cluster.ask(
        Envelope(api_key=key, api_version=version, client_id=asked.context.client_id,
                 client_host=asked.context.client_host, body=asked.body),
        EnvelopeAnswer, timeout_seconds=_timeout_seconds(broker, asked.request))
    return PassedOn(answer.body)


async def _handled(broker: Broker, request: Request, context: Context) -> Response:
    response: Any = handlers.load(request.KEY)(broker, request, context)
    answer: Response = await response if inspect.isawaitable(response) else response
    return answer


def _timeout_seconds(broker: Broker, request: Request) -> float:
    timeout_ms = getattr(request, "timeout", 0)
    if timeout_ms <= 0:
        return TIMEOUT_SECONDS
    return min(timeout_ms, broker.settings.request_max_wait_ms) / 1000


def serve(broker: Broker) -> None:
    """Answer what other nodes pass on, while this node is the controller."""

    async def open_envelope(sender: NodeId, envelope: Envelope) -> EnvelopeAnswer:
        del sender
        key, version = envelope.api_key, envelope.api_version
        served = handlers.SUPPORTED.get(key)
        if served is None or not served[0] <= version <= served[1] or not (
                handlers.is_on_controller(key)):
            raise RequestError(f"api {key} version {version} is not answered for other nodes",
                               code=Code.UNSUPPORTED_VERSION)
        size_max = broker.settings.max_request_bytes
        if len(envelope.body) > size_max:
            raise RequestError(f"{len(envelope.body)} bytes; at most {size_max} are taken "
                               "(max.request.bytes)", code=Code.INVALID_REQUEST)
        request = understood(broker, key, envelope.body, version)
        answer = Answer(broker.answers, RESPONSES[key], version)
        context = Context(version, 0, envelope.client_id, envelope.client_host, answer)
        try:
            response = await _handled(broker, request, context)
            return EnvelopeAnswer(body=response.encode(version))
        finally:
            answer.release()

    broker.cluster.answer(Envelope, open_envelope)

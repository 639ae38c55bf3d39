"""FindCoordinator — API key 10, versions 0-6.

Behaviour
    * a group's coordinator is the leader of the partition of `__consumer_offsets` that the hash of
      the group's name selects; the topic is created when a coordinator is first requested
    * COORDINATOR_NOT_AVAILABLE while that partition has no leader, or if the leader does not have
      the listener that the client connected to
    * transactions are not served; the error message says so.  From v4 on the code is
      UNSUPPORTED_VERSION, at which clients stop and show the message.  Up to v3, which librdkafka
      uses, it is TRANSACTIONAL_ID_AUTHORIZATION_FAILED, as librdkafka stops at no other: it retries
      until the caller's time is over; it shows the message, too
    * any other key type is INVALID_REQUEST
Versions
    v1  key type, error message
    v4  several keys in one request, a coordinator for each
"""

from typing import Final

from quipu.broker.coordinators.shards import LOAD_SECONDS_MAX
from quipu.broker.error_codes import code_of
from quipu.broker.serving.context import Broker, Context
from quipu.broker.serving.transactions import NO_TRANSACTIONS, transaction_refusal
from quipu.model.errors import Code, QuipuError
from quipu.model.listeners import ClientListener
from quipu.wire.messages.k10_find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

GROUP: Final = 0
TRANSACTION: Final = 1
NO_NODE: Final = -1
MANY_KEYS_SINCE: Final = 4
STOPS_AT_ANY_SINCE: Final = 4  # clients of these versions stop at any error code


async def handle(
    broker: Broker, request: FindCoordinatorRequest, context: Context
) -> FindCoordinatorResponse:
    """Respond with the coordinators of groups."""
    search = _CoordinatorSearch(
        broker, request.key_type, context.listener, context.api_version)
    if context.api_version >= MANY_KEYS_SINCE:
        response = FindCoordinatorResponse(coordinators=context.array(Coordinator))
        for key in request.coordinator_keys:
            await context.pause()
            response.coordinators.append(await search.find(key))
        return response
    found = await search.find(request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code, error_message=found.error_message, node_id=found.node_id,
        host=found.host, port=found.port)


def refuse(request: FindCoordinatorRequest, error: QuipuError) -> FindCoordinatorResponse:
    """Respond with the error for each key."""
    return FindCoordinatorResponse(coordinators=[
        _nobody(key, code_of(error), str(error)) for key in request.coordinator_keys])


class _CoordinatorSearch:
    """Finds the coordinators of one request; all of them share one limit on the wait."""

    def __init__(
        self, broker: Broker, key_type: int, listener: ClientListener, version: int
    ) -> None:
        self._version = version
        self._broker = broker
        self._listener = listener
        self._key_type = key_type
        self._until = broker.clock.monotonic() + LOAD_SECONDS_MAX
        self._failure: QuipuError | None = None

    async def find(self, key: str) -> Coordinator:
        broker = self._broker
        if self._key_type == TRANSACTION:
            return _nobody(key, transaction_refusal(self._version, STOPS_AT_ANY_SINCE),
                           NO_TRANSACTIONS)
        if self._key_type != GROUP:
            return _nobody(key, Code.INVALID_REQUEST,
                           f"coordinators of type {self._key_type} do not exist")
        found = None
        if self._failure is None:
            try:
                found = await broker.groups.shards.find_coordinator(
                    key, self._listener.name,
                    wait_seconds=max(0.0, self._until - broker.clock.monotonic()))
            except QuipuError as error:  # the topic cannot be created now
                self._failure = error
        if self._failure is not None:
            return _nobody(key, Code.COORDINATOR_NOT_AVAILABLE, str(self._failure))
        if found is None:
            return _nobody(
                key, Code.COORDINATOR_NOT_AVAILABLE, "the group's partition has no leader")
        return Coordinator(
            key=key, node_id=found.node_id, host=found.host, port=found.port, error_message=None)


def _nobody(key: str, code: Code, message: str) -> Coordinator:
    return Coordinator(
        key=key, node_id=NO_NODE, host="", port=-1, error_code=code, error_message=message)

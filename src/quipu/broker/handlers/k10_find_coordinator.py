"""FindCoordinator — API key 10, versions 0-6.

Behaviour
    * a group's coordinator leads the partition of `__consumer_offsets` that the group's name falls
      on; the topic is created when it is first looked for
    * while nobody leads that partition the answer is COORDINATOR_NOT_AVAILABLE
    * transactions are not served: clients are refused in the way that makes them stop asking
    * any other key type is INVALID_REQUEST
Versions
    v1  key type, error message
    v4  several keys in one request, one answer for each
"""

from typing import Final

from quipu.broker.context import Broker, Context
from quipu.broker.groups.coordinator import LOAD_SECONDS_MAX
from quipu.model.errors import Code, QuipuError
from quipu.wire.messages.k10_find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

GROUP: Final = 0
TRANSACTION: Final = 1
NO_NODE: Final = -1
MANY_KEYS_SINCE: Final = 4


async def handle(
    broker: Broker, request: FindCoordinatorRequest, context: Context
) -> FindCoordinatorResponse:
    """Tell where groups are served."""
    search = _Search(broker, request.key_type)
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
    """Tell every key that all failed."""
    return FindCoordinatorResponse(coordinators=[
        _nobody(key, error.code, str(error)) for key in request.coordinator_keys])


class _Search:
    """One request's search: whatever it has to wait for, it waits for once."""

    def __init__(self, broker: Broker, key_type: int) -> None:
        self._broker = broker
        self._key_type = key_type
        self._until = broker.clock.monotonic() + LOAD_SECONDS_MAX
        self._failure: QuipuError | None = None

    async def find(self, key: str) -> Coordinator:
        broker = self._broker
        if self._key_type == TRANSACTION:
            return _nobody(key, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                           "transactions are not served")
        if self._key_type != GROUP:
            return _nobody(key, Code.INVALID_REQUEST,
                           f"coordinators of type {self._key_type} do not exist")
        found = None
        if self._failure is None:
            try:
                found = await broker.groups.find_coordinator(
                    key, wait_seconds=max(0.0, self._until - broker.clock.monotonic()))
            except QuipuError as error:  # the topic cannot be created now
                self._failure = error
        if self._failure is not None:
            return _nobody(key, Code.COORDINATOR_NOT_AVAILABLE, str(self._failure))
        if found is None:
            return _nobody(
                key, Code.COORDINATOR_NOT_AVAILABLE, "nobody leads the group's partition")
        return Coordinator(
            key=key, node_id=found.node_id, host=found.host, port=found.port, error_message=None)


def _nobody(key: str, code: Code, message: str) -> Coordinator:
    return Coordinator(
        key=key, node_id=NO_NODE, host="", port=-1, error_code=code, error_message=message)

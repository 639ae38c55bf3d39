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
    if context.api_version >= MANY_KEYS_SINCE:
        return FindCoordinatorResponse(coordinators=[
            await _find(broker, request.key_type, key) for key in request.coordinator_keys])
    found = await _find(broker, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code, error_message=found.error_message, node_id=found.node_id,
        host=found.host, port=found.port)


async def _find(broker: Broker, key_type: int, key: str) -> Coordinator:
    if key_type == TRANSACTION:
        return _nobody(key, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                       "transactions are not served")
    if key_type != GROUP:
        return _nobody(key, Code.INVALID_REQUEST, f"coordinators of type {key_type} do not exist")
    try:
        found = await broker.groups.find_coordinator(key)
    except QuipuError as error:  # the topic cannot be created now
        return _nobody(key, Code.COORDINATOR_NOT_AVAILABLE, str(error))
    if found is None:
        return _nobody(key, Code.COORDINATOR_NOT_AVAILABLE, "nobody leads the group's partition")
    return Coordinator(
        key=key, node_id=found.node_id, host=found.host, port=found.port, error_message=None)


def _nobody(key: str, code: Code, message: str) -> Coordinator:
    return Coordinator(
        key=key, node_id=NO_NODE, host="", port=-1, error_code=code, error_message=message)

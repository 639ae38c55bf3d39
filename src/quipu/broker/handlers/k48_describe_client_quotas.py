"""DescribeClientQuotas — API key 48, versions 0-1.

Behaviour
    * there are no quotas, so no entity has any
    * filters are checked as in Kafka: INVALID_REQUEST, or UNSUPPORTED_VERSION for a type of entity
      that does not exist; the entries are null then
Versions
    v1  flexible encoding
"""

from collections.abc import Sequence
from typing import Final

from quipu.broker.serving.context import Broker, Context
from quipu.model.errors import Code, RequestError
from quipu.wire.messages.k48_describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)
EXACT, DEFAULT, ANY = range(3)


def handle(
    broker: Broker, request: DescribeClientQuotasRequest, context: Context
) -> DescribeClientQuotasResponse:
    del broker, context
    try:
        _check(request.components)
    except RequestError as error:
        return DescribeClientQuotasResponse(
            error_code=error.code, error_message=str(error), entries=None)
    return DescribeClientQuotasResponse(entries=[])


def _check(components: Sequence[ComponentData]) -> None:
    seen: set[str] = set()
    for component in components:
        kind, match = component.entity_type, component.match_type
        if not kind:
            raise RequestError("a type of entity is empty", code=Code.INVALID_REQUEST)
        if kind in seen:
            raise RequestError(f"{kind} is named twice", code=Code.INVALID_REQUEST)
        if kind not in ENTITY_TYPES:
            raise RequestError(f"{kind[:40]!r} is no type of entity; these are "
                               f"{', '.join(ENTITY_TYPES)}", code=Code.UNSUPPORTED_VERSION)
        if match not in (EXACT, DEFAULT, ANY):
            raise RequestError(f"unknown type of match {match}", code=Code.INVALID_REQUEST)
        if (match == EXACT) != (component.match is not None):
            raise RequestError("a name is given for an exact match (0), and for no other",
                               code=Code.INVALID_REQUEST)
        seen.add(kind)
    if IP in seen and len(seen) > 1:
        raise RequestError("quotas of an address are not combined with users and client ids",
                           code=Code.INVALID_REQUEST)

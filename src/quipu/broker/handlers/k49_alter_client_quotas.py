"""AlterClientQuotas — API key 49, versions 0-1.

Behaviour
    * there are no quotas: one that is to be set is INVALID_REQUEST, and the message says so; one
      that is to be removed is not there, which is no error
    * responds per entity; one that is named twice, or with a quota twice, is INVALID_REQUEST
    * with validate_only the response is the same
Versions
    v1  flexible encoding
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from quipu.broker.handlers.k48_describe_client_quotas import ENTITY_TYPES, IP
from quipu.broker.serving.context import Broker, Context
from quipu.model.errors import Code
from quipu.wire.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntryData,
    EntityData,
    EntryData,
)

NOT_SUPPORTED: Final = (
    "client quotas are not supported: nothing was changed, and clients are not throttled")

Entity = frozenset[tuple[str, str | None]]


async def handle(
    broker: Broker, request: AlterClientQuotasRequest, context: Context
) -> AlterClientQuotasResponse:
    del broker
    named = Counter(map(_entity, request.entries))
    response = AlterClientQuotasResponse(entries=context.array(AlteredEntryData))
    for entry in {_entity(entry): entry for entry in request.entries}.values():
        await context.pause()
        why = ("an entity may be named once in a request" if named[_entity(entry)] > 1
               else _why_refused(entry))
        response.entries.append(AlteredEntryData(
            error_code=Code.NONE if why is None else Code.INVALID_REQUEST, error_message=why,
            entity=entry.entity))
    return response


def _entity(entry: EntryData) -> Entity:
    return frozenset((part.entity_type, part.entity_name) for part in entry.entity)


def _why_refused(entry: EntryData) -> str | None:
    why = _why_no_entity(entry.entity)
    if why is not None:
        return why
    if len({change.key for change in entry.ops}) < len(entry.ops):
        return "a quota may be named once for an entity"
    return None if all(change.remove for change in entry.ops) else NOT_SUPPORTED


def _why_no_entity(parts: Sequence[EntityData]) -> str | None:
    if not parts:
        return "an entity is empty"
    types = {part.entity_type for part in parts}
    if not types <= set(ENTITY_TYPES):
        return f"types of entities are {', '.join(ENTITY_TYPES)}"
    if any(part.entity_name == "" for part in parts):
        return "the name of an entity is empty; the default of a type is null"
    if IP in types and len(types) > 1:
        return "quotas of an address are not combined with users and client ids"
    return None

"""AlterClientQuotas — API key 49, versions 0-1.

Behaviour
    * sets and removes quotas of entities
Versions
    v1  flexible encoding
"""

from quipu.wire.fields import array, boolean, float64, int16, int32, string
from quipu.wire.schema import Request, Response, Struct


class EntityData(Struct):
    """One part of an entity; a name of null is the default of its type."""

    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


class OpData(Struct):
    """A quota to set or to remove."""

    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class EntryData(Struct):
    """An entity, and the changes to its quotas."""

    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


class AlterClientQuotasRequest(Request, key=49, versions="0-1", flexible="1+"):
    """Change quotas."""

    entries: list[EntryData] = array(EntryData)
    validate_only: bool = boolean()


class AlteredEntryData(Struct):
    """Whether the quotas of one entity were changed."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entity: list[EntityData] = array(EntityData)


class AlterClientQuotasResponse(Response, key=49, versions="0-1", flexible="1+"):
    """The result for each entity."""

    throttle_time: int = int32()
    entries: list[AlteredEntryData] = array(AlteredEntryData)

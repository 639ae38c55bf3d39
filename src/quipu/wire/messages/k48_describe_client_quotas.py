"""DescribeClientQuotas — API key 48, versions 0-1.

Behaviour
    * returns the quotas of the entities that match: users, client ids and addresses
    * a component matches one name (match type 0), the default (1) or any name (2)
Versions
    v1  flexible encoding
"""

from quipu.wire.fields import array, boolean, float64, int8, int16, int32, string
from quipu.wire.schema import Request, Response, Struct


class ComponentData(Struct):
    """What one part of an entity has to be."""

    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable="0+")


class DescribeClientQuotasRequest(Request, key=48, versions="0-1", flexible="1+"):
    """Get the quotas of these entities; strict: of entities with no other parts."""

    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


class EntityData(Struct):
    """One part of an entity; a name of null is the default of its type."""

    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


class ValueData(Struct):
    """One quota."""

    key: str = string()
    value: float = float64()


class EntryData(Struct):
    """The quotas of one entity."""

    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


class DescribeClientQuotasResponse(Response, key=48, versions="0-1", flexible="1+"):
    """The quotas by entity."""

    throttle_time: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entries: list[EntryData] | None = array(EntryData, nullable="0+")

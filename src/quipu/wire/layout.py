"""The layout of one version of a struct: which fields are on the wire, in which order.

A version is *flexible* when it uses compact lengths and ends every struct with a tag section.
Fields that a version lacks keep their defaults when it is read and are left out when written.
"""

from functools import cache
from typing import Any, NamedTuple

from quipu.wire.fields import RECORDS, Field, FieldKind, parse_versions


class FieldSlot(NamedTuple):
    """A field in one version."""

    name: str
    kind: Any  # a FieldKind, or the class of a nested struct
    is_array: bool
    nullable: bool
    tag: int | None
    default: Any

    @property
    def is_struct(self) -> bool:
        return not isinstance(self.kind, FieldKind)

    @property
    def is_fixed(self) -> bool:
        """Whether a value (or each element of an array) always has the same size in bytes."""
        return isinstance(self.kind, FieldKind) and bool(self.kind.code)


class StructLayout(NamedTuple):
    """A struct in one version."""

    name: str
    struct: Any
    plain: tuple[FieldSlot, ...]  # in wire order
    tagged: tuple[FieldSlot, ...]  # by tag
    absent: tuple[FieldSlot, ...]  # fields of other versions (wire.M4)


@cache
def layout(struct: Any, version: int) -> StructLayout:
    slots = [(field, _slot(name, field, version)) for name, field in struct.FIELDS.items()]
    present = [slot for field, slot in slots if version in parse_versions(field.versions)]
    absent = [slot for field, slot in slots if version not in parse_versions(field.versions)]
    tagged = sorted((slot for slot in present if slot.tag is not None), key=_tag)
    assert len({slot.tag for slot in tagged}) == len(tagged), struct
    return StructLayout(
        struct.__name__,
        struct,
        tuple(slot for slot in present if slot.tag is None),
        tuple(tagged),
        tuple(absent),
    )


@cache
def has_records(struct: Any) -> bool:
    """Whether the struct, or one nested in it, holds record batches in any version."""
    return any(
        has_records(field.kind) if field.is_struct else field.kind is RECORDS
        for field in struct.FIELDS.values()
    )


def size_min(struct: Any, version: int, *, flexible: bool) -> int:
    """The smallest size of a struct in bytes; bounds how many of them the bytes left can hold."""
    size = sum(_slot_size_min(slot, version, flexible=flexible)
               for slot in layout(struct, version).plain)
    return size + flexible  # the count of tags


def _slot_size_min(slot: FieldSlot, version: int, *, flexible: bool) -> int:
    if slot.is_array:
        return 1 if flexible else 4
    if slot.is_struct:
        return 1 if slot.nullable else size_min(slot.kind, version, flexible=flexible)
    if slot.is_fixed:
        return int(slot.kind.size_min)
    if flexible:
        return 1
    return 2 if slot.kind.name == "string" else 4


def _slot(name: str, field: Field, version: int) -> FieldSlot:
    nullable = version in parse_versions(field.nullable)
    return FieldSlot(name, field.kind, field.is_array, nullable, field.tag, field.default)


def _tag(slot: FieldSlot) -> int:
    assert slot.tag is not None
    return slot.tag

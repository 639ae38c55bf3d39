"""What one version of a struct looks like on the wire: which fields, in which order.

A version is *flexible* when it uses compact lengths and ends every struct with a tag section.
Fields that a version lacks keep their defaults when it is read and are left out when written.
"""

from functools import cache
from typing import Any, NamedTuple

from quipu.wire.fields import RECORDS, Field, Kind, parse_versions


class Slot(NamedTuple):
    """A field in one version."""

    name: str
    kind: Any  # Kind, or the class of a nested struct
    is_array: bool
    nullable: bool
    tag: int | None
    default: Any

    @property
    def is_struct(self) -> bool:
        return not isinstance(self.kind, Kind)

    @property
    def is_fixed(self) -> bool:
        """Does one value (or, of an array, each element) always take the same bytes?"""
        return isinstance(self.kind, Kind) and bool(self.kind.code)


class Layout(NamedTuple):
    """A struct in one version."""

    name: str
    struct: Any
    plain: tuple[Slot, ...]  # in wire order
    tagged: tuple[Slot, ...]  # by tag
    absent: tuple[Slot, ...]  # fields of other versions


@cache
def layout(struct: Any, version: int) -> Layout:
    slots = [(field, _slot(name, field, version)) for name, field in struct.FIELDS.items()]
    present = [slot for field, slot in slots if version in parse_versions(field.versions)]
    absent = [slot for field, slot in slots if version not in parse_versions(field.versions)]
    tagged = sorted((slot for slot in present if slot.tag is not None), key=_tag)
    assert len({slot.tag for slot in tagged}) == len(tagged), struct
    return Layout(
        struct.__name__,
        struct,
        tuple(slot for slot in present if slot.tag is None),
        tuple(tagged),
        tuple(absent),
    )


@cache
def has_records(struct: Any) -> bool:
    """Does the struct, or one within it, hold record batches in any version?"""
    return any(
        has_records(field.kind) if field.is_struct else field.kind is RECORDS
        for field in struct.FIELDS.values()
    )


def size_min(struct: Any, version: int, *, flexible: bool) -> int:
    """The fewest bytes that a struct may take; what a hostile count is measured against."""
    size = sum(_slot_size_min(slot, version, flexible=flexible)
               for slot in layout(struct, version).plain)
    return size + flexible  # the count of tags


def _slot_size_min(slot: Slot, version: int, *, flexible: bool) -> int:
    if slot.is_array:
        return 1 if flexible else 4
    if slot.is_struct:
        return 1 if slot.nullable else size_min(slot.kind, version, flexible=flexible)
    if slot.is_fixed:
        return int(slot.kind.size_min)
    if flexible:
        return 1
    return 2 if slot.kind.name == "string" else 4


def _slot(name: str, field: Field, version: int) -> Slot:
    nullable = version in parse_versions(field.nullable)
    return Slot(name, field.kind, field.is_array, nullable, field.tag, field.default)


def _tag(slot: Slot) -> int:
    assert slot.tag is not None
    return slot.tag

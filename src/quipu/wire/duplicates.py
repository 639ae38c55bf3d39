"""Merges elements that a request names several times, so that each is handled once.

Two elements of an array are equal if all their plain fields are; their own arrays are concatenated,
and null, which means everything, absorbs the others.  So the work for a request is bounded by the
number of topics and partitions that exist, not by how often the request names them.

Not for requests in which duplicates are an error, or whose order matters.
"""

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any

from quipu.wire.schema import Message, Struct


def merge_duplicates(message: Message) -> None:
    """Replace every array of `message` by one that has each element once."""
    for name in _arrays(type(message)):
        array = getattr(message, name)
        if array:
            setattr(message, name, _merged(array))


def _merged(array: list[Any]) -> list[Any]:
    kind = type(array[0])
    if not issubclass(kind, Struct):  # strings or numbers
        return list(dict.fromkeys(array)) if len(array) > 1 else array
    arrays = _arrays(kind)
    if len(array) > 1:
        array = _joined(array, _key(kind), arrays)
    for name in arrays:
        for struct in array:
            inner = getattr(struct, name)
            if inner:
                setattr(struct, name, _merged(inner))
    return array


def _joined(array: list[Any], key: Callable[[Any], Any], arrays: list[str]) -> list[Any]:
    first: dict[Any, Any] = {}
    for struct in array:
        same = first.setdefault(key(struct), struct)
        if same is not struct:
            for name in arrays:
                _join(same, struct, name)
    return array if len(first) == len(array) else list(first.values())


def _join(same: Any, other: Any, name: str) -> None:
    ours, theirs = getattr(same, name), getattr(other, name)
    if ours is None or theirs is None:
        setattr(same, name, None)
    else:
        ours.extend(theirs)


@cache
def _arrays(kind: Any) -> list[str]:
    return [name for name, field in kind.FIELDS.items() if field.is_array]


@cache
def _key(kind: Any) -> Callable[[Any], Any]:
    """A function that returns the plain fields of a struct, by which structs are compared."""
    plain = [name for name, field in kind.FIELDS.items()
             if not field.is_array and not field.is_struct]
    return attrgetter(*plain) if plain else (lambda _: None)

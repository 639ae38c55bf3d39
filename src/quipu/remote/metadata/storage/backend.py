"""The protocol of a storage backend: a key-value store whose operations can be combined atomically.

Keys are text, values are bytes.  A key like another one is below it: `a/b` and `a/b/c` are below
`a`, `ab` is not.  Keys are compared by their ASCII characters.

Invariants
    remote.B1  `execute` carries out all of its operations or none, in their order, and no other
               write comes in between; once it has returned, its effect survives the end of this
               process, and that of this machine if the backend does
    remote.B2  expectations are checked in the same atomic step as the writes: a write that expects
               a value that is no longer there changes nothing
    remote.B3  creating a key with the value that it has already is a retry, and succeeds; so is
               removing a key that does not exist
    remote.B4  after a write has returned, every read sees it or a later one, on every machine
    remote.B5  OutcomeUnknown is the only error after which a write may have been carried out

A backend of a user needs the methods of `MetadataStorageBackend`; what `OrderedBackend` adds can be
built on them, slowly.  A backend over a log writes the result of `plan_operations` as one batch of
records, a record without a value for each key that goes.

Not here: which keys there are (keys.py), what values mean (serde.py).
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, runtime_checkable

from quipu.remote.metadata.errors import (
    ExpectationFailed,
    InvalidStorageRequest,
    KeyExists,
    KeyNotFound,
)
from quipu.remote.metadata.serde import VALUE_SIZE_MAX

KEY_SIZE_MAX: Final = 512  # characters
OPERATIONS_MAX: Final = 100_000  # of one `execute`: a bound on memory, not on what a segment needs
PAGE_MAX: Final = 500  # entries that are read at once


class CreateKey(NamedTuple):
    """Create a key; one that has the same value already is a retry (remote.B3)."""

    key: str
    value: bytes


class UpdateKey(NamedTuple):
    """Give a key that exists another value."""

    key: str
    value: bytes


class RemoveKey(NamedTuple):
    """Remove a key; one that does not exist counts as removed (remote.B3)."""

    key: str


class ExpectValue(NamedTuple):
    """Fail, and write nothing, unless a key has this value (remote.B2)."""

    key: str
    value: bytes


Operation = CreateKey | UpdateKey | RemoveKey | ExpectValue


class KeyValue(NamedTuple):
    """A key with its value."""

    key: str
    value: bytes


class MetadataStorageBackend(Protocol):
    """A binary key-value store; it raises only the errors of remote.metadata.errors."""

    async def create(self, key: str, value: bytes) -> None:
        """Create a key; raises `KeyExists` if it has another value."""
        ...

    async def update(self, key: str, value: bytes) -> None:
        """Give a key another value; raises `KeyNotFound` if it does not exist."""
        ...

    async def get(self, key: str) -> bytes | None:
        """The value of a key; None if it does not exist."""
        ...

    async def get_like(self, key: str) -> Sequence[KeyValue]:
        """All entries below `key`, in any order."""
        ...

    async def remove_like(self, key: str, *, expected: Sequence[ExpectValue] = ()) -> None:
        """Remove all entries below `key` if every expectation holds.

        This need not be atomic: after an error some entries may be gone, and the caller repeats it.
        """
        ...

    async def execute(self, operations: Sequence[Operation]) -> None:
        """Carry out all operations, or none (remote.B1)."""
        ...

    async def close(self) -> None:
        """Release the backend's resources; it must not be used afterwards."""
        ...


@runtime_checkable
class OrderedBackend(MetadataStorageBackend, Protocol):
    """A backend that finds entries by the order of their keys."""

    async def floor(self, parent: str, key: str) -> KeyValue | None:
        """The entry below `parent` with the greatest key that is not above `key`."""
        ...

    async def page(self, parent: str, after: str | None, limit: int) -> Sequence[KeyValue]:
        """Up to `limit` entries below `parent` in the order of their keys, those above `after`."""
        ...

    async def get_many(self, keys: Sequence[str]) -> Mapping[str, bytes]:
        """The entries of those keys that exist."""
        ...


async def find_floor(
    backend: MetadataStorageBackend, parent: str, key: str
) -> KeyValue | None:
    """The entry below `parent` with the greatest key that is not above `key`, in any backend."""
    if isinstance(backend, OrderedBackend):
        return await backend.floor(parent, key)
    return max((each for each in await backend.get_like(parent) if each.key <= key), default=None)


async def walk(backend: MetadataStorageBackend, parent: str) -> AsyncIterator[KeyValue]:
    """All entries below `parent` in the order of their keys, from any backend."""
    if not isinstance(backend, OrderedBackend):
        for each in sorted(await backend.get_like(parent)):
            yield each
        return
    after: str | None = None
    while found := await backend.page(parent, after, PAGE_MAX):
        for each in found:
            yield each
        after = found[-1].key


async def get_many(backend: MetadataStorageBackend, keys: Sequence[str]) -> dict[str, bytes]:
    """The entries of those keys that exist, from any backend."""
    found: dict[str, bytes] = {}
    if isinstance(backend, OrderedBackend):
        for start in range(0, len(keys), PAGE_MAX):
            found.update(await backend.get_many(keys[start:start + PAGE_MAX]))
        return found
    for key in keys:
        if (value := await backend.get(key)) is not None:
            found[key] = value
    return found


# -- Pure parts that every backend shares.


def range_below(key: str) -> tuple[str, str]:
    """The keys below `key` are those from the first key (inclusive) to the second (exclusive)."""
    check_key(key)
    return key + "/", key + "0"  # "0" follows "/"


def check_key(key: str) -> None:
    if not 0 < len(key) <= KEY_SIZE_MAX or not key.isascii() or not key.isprintable():
        raise InvalidStorageRequest(f"{key[:80]!r}: a key has 1 to {KEY_SIZE_MAX} printable ASCII "
                                    "characters")


def check_operations(operations: Sequence[Operation]) -> list[str]:
    """The keys of operations, each once, in order; raises `InvalidStorageRequest`."""
    if len(operations) > OPERATIONS_MAX:
        raise InvalidStorageRequest(f"{len(operations)} operations; at most {OPERATIONS_MAX} are "
                                    "carried out in one step")
    for operation in operations:
        check_key(operation.key)
        if isinstance(operation, CreateKey | UpdateKey) and len(operation.value) > VALUE_SIZE_MAX:
            raise InvalidStorageRequest(f"{operation.key}: {len(operation.value)} bytes; a value "
                                        f"has at most {VALUE_SIZE_MAX}")
    return sorted({operation.key for operation in operations})


class WritePlan(NamedTuple):
    """What operations change, each key once and sorted: so that rows are locked in one order."""

    inserted: tuple[KeyValue, ...]
    updated: tuple[KeyValue, ...]
    removed: tuple[str, ...]


def plan_operations(operations: Sequence[Operation], stored: Mapping[str, bytes]) -> WritePlan:
    """What `operations` change in `stored`, which has the values of their keys.

    Raises `ExpectationFailed`, `KeyExists` or `KeyNotFound` if one of them cannot be carried out.
    """
    after: dict[str, bytes | None] = {}
    for operation in operations:
        key = operation.key
        found = after[key] if key in after else stored.get(key)
        match operation:
            case ExpectValue(_, value):
                if found != value:  # remote.B2
                    raise ExpectationFailed(f"{key}: another writer has changed it; read it again")
            case CreateKey(_, value):
                if found is not None and found != value:  # remote.B3
                    raise KeyExists(f"{key}: it exists with another value")
                after[key] = value
            case UpdateKey(_, value):
                if found is None:
                    raise KeyNotFound(f"{key}: it does not exist, so it cannot be updated")
                after[key] = value
            case RemoveKey():
                after[key] = None
    changed = {key: value for key, value in sorted(after.items()) if value != stored.get(key)}
    return WritePlan(
        tuple(KeyValue(key, value) for key, value in changed.items()
              if value is not None and key not in stored),
        tuple(KeyValue(key, value) for key, value in changed.items()
              if value is not None and key in stored),
        tuple(key for key, value in changed.items() if value is None))

"""The protocol of an object store, and the guarantees of every store.

Invariants
    runtime.O1  an object is visible whole or not at all; after a put has returned, every read
                sees its object or that of a later put.  A put that raises `StoreUnavailable` may
                have been carried out, or may be carried out later
    runtime.O2  of all puts of one key with `if_absent`, at most one succeeds until the object is
                deleted; a put with `if_match` succeeds only if the object has that version, and
                nothing changes it in between
    runtime.O3  once a put or a delete has returned, its effect survives the end of this process,
                and that of this machine if the store does
    runtime.O5  each call is bounded in its keys, ranges, bytes and the size of a page
    runtime.O6  a listing has every object that existed all the time, in the order of the keys,
                once; each page begins after the last key of the previous one

A version (`ObjectInfo.version`) identifies one state of an object; S3 calls it ETag.  It changes
with every put of other bytes; S3 has the same version for the same bytes.
"""

from collections.abc import AsyncIterable, Sequence
from typing import Final, NamedTuple, Protocol

from quipu.runtime.objects.errors import InvalidObjectRequest, PreconditionFailed
from quipu.runtime.objects.keys import check_key, check_prefix

PUT_SIZE_MAX: Final = 256 << 20  # bytes of an object put at once; larger ones are put in parts
PART_SIZE_MAX: Final = 64 << 20
GET_SIZE_MAX: Final = 256 << 20  # bytes that one call returns, all ranges together
RANGES_MAX: Final = 100
LIST_MAX: Final = 1000  # objects on a page
DELETE_MAX: Final = 1000  # keys in one call
NO_TIME: Final = 0  # the store's response to a put did not say when

Buffer = bytes | bytearray | memoryview


class ObjectInfo(NamedTuple):
    """An object without its bytes."""

    key: str
    size: int
    version: str
    modified_ms: int  # when it was put, by the store's own clock; a put may return NO_TIME


class ByteRange(NamedTuple):
    """Bytes from `start` up to `end` (exclusive); cut at the end of the object."""

    start: int
    end: int


class ObjectPage(NamedTuple):
    """One page of a listing."""

    objects: tuple[ObjectInfo, ...]
    after: str | None  # list again after this key; None: this is the last page


class ObjectStore(Protocol):
    """A store of objects by key; it raises only the errors in `objects.errors`."""

    async def put(
        self, key: str, data: Sequence[Buffer], *,
        if_absent: bool = False, if_match: str | None = None,
    ) -> ObjectInfo:
        """Store the concatenated buffers as one object, replacing one with the same key.

        With `if_absent`, only if there is none; with `if_match`, only if it has that version;
        raises `PreconditionFailed` otherwise.  The buffers must not change before this returns.
        """
        ...

    async def put_parts(self, key: str, parts: AsyncIterable[Buffer]) -> ObjectInfo:
        """Store an object of any size from parts of at most PART_SIZE_MAX bytes.

        If `parts` raises, nothing is stored.
        """
        ...

    async def get(self, key: str) -> bytes:
        """All bytes of an object of at most GET_SIZE_MAX bytes."""
        ...

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> Sequence[Buffer]:
        """The bytes of each range, all from the same version of the object; not to be changed."""
        ...

    async def head(self, key: str) -> ObjectInfo:
        """Size, version and time of an object."""
        ...

    async def list(
        self, prefix: str = "", *, after: str | None = None, limit: int = LIST_MAX
    ) -> ObjectPage:
        """Up to `limit` objects whose keys begin with `prefix` and come after `after`."""
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; one that does not exist counts as deleted.

        If this raises, some of them may be deleted: call it again.
        """
        ...

    async def close(self) -> None:
        """Release the store's resources; it must not be used afterwards."""
        ...


# -- Checks that every store makes first (runtime.O5).


def check_put(key: str, data: Sequence[Buffer], *, if_absent: bool, if_match: str | None) -> int:
    """The size of the object to put; raises `InvalidObjectRequest`."""
    check_key(key)
    size = sum(map(len, data))
    if size > PUT_SIZE_MAX:
        raise InvalidObjectRequest(f"{key}: {size} bytes; at most {PUT_SIZE_MAX} are put at once, "
                                   "more in parts")
    if if_absent and if_match is not None:
        raise InvalidObjectRequest(f"{key}: if_absent and if_match exclude each other")
    return size


def check_part(key: str, part: Buffer) -> None:
    if len(part) > PART_SIZE_MAX:
        raise InvalidObjectRequest(f"{key}: a part of {len(part)} bytes; at most {PART_SIZE_MAX}")


def check_ranges(key: str, ranges: Sequence[ByteRange]) -> None:
    check_key(key)
    if not 1 <= len(ranges) <= RANGES_MAX:
        raise InvalidObjectRequest(f"{key}: {len(ranges)} ranges; 1 to {RANGES_MAX} are read at "
                                   "once")
    if not all(0 <= start < end for start, end in ranges):
        raise InvalidObjectRequest(f"{key}: a range that has no bytes")
    if sum(end - start for start, end in ranges) > GET_SIZE_MAX:
        raise InvalidObjectRequest(f"{key}: more than {GET_SIZE_MAX} bytes at once")


def check_ranges_of(info: ObjectInfo, ranges: Sequence[ByteRange]) -> None:
    """Raise unless every range begins inside the object."""
    for start, end in ranges:
        if start >= info.size:
            raise InvalidObjectRequest(
                f"{info.key}: bytes {start} to {end} of an object of {info.size}")


def check_whole(info: ObjectInfo) -> None:
    if info.size > GET_SIZE_MAX:
        raise InvalidObjectRequest(f"{info.key}: {info.size} bytes; at most {GET_SIZE_MAX} are "
                                   "read at once, more in ranges")


def check_list(prefix: str, after: str | None, limit: int) -> None:
    check_prefix(prefix)
    if after is not None:
        check_key(after)
    if not 1 <= limit <= LIST_MAX:
        raise InvalidObjectRequest(f"a page of {limit} objects; 1 to {LIST_MAX} are listed at once")


def check_delete(keys: Sequence[str]) -> None:
    for key in keys:
        check_key(key)
    if len(keys) > DELETE_MAX:
        raise InvalidObjectRequest(f"{len(keys)} keys; at most {DELETE_MAX} are deleted at once")


def check_match(key: str, found: str | None, *, if_absent: bool, if_match: str | None) -> None:
    """Raise `PreconditionFailed` unless version `found` (None: no object) is the expected one."""
    if if_absent and found is not None:
        raise PreconditionFailed(f"{key}: the object exists already")
    if if_match is not None and found != if_match:
        raise PreconditionFailed(
            f"{key}: has version {found}, not {if_match}" if found is not None
            else f"{key}: does not exist, but should have version {if_match}")

"""A store of S3, Google Cloud Storage or Azure, by the library `obstore`.

Requests that may be repeated without harm are repeated by obstore, with back-off; every call ends
by its deadline with `StoreUnavailable`.  A put with a condition is sent once: if it was carried out
and its response lost, a second attempt would meet the object of the first one, and report that the
condition failed (runtime.O2).

The version of an object is its ETag.  S3 computes it from the bytes, so putting the same bytes
again does not change it.  Google replaces by generation, not by ETag: a put with `if_match` there
looks up the generation first.  Azure's listings give ETags without the quotes that its other
responses have.

Parts of an object are sent as a multipart upload, a few at a time.  If this process ends meanwhile,
the uploaded parts stay in the bucket, invisible: give the bucket a lifecycle rule that removes
incomplete uploads.

Not here: URLs (urls.py, parameters.py), credentials (credentials.py), errors (cloud_errors.py).
"""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, TypeVar

import obstore

from quipu.runtime.objects.cloud_errors import CloudErrors, mapped
from quipu.runtime.objects.cloud_options import open_clients
from quipu.runtime.objects.errors import (
    InvalidObjectRequest,
    ObjectNotFound,
    ObjectStoreError,
    PreconditionFailed,
    StoreUnavailable,
)
from quipu.runtime.objects.keys import check_key
from quipu.runtime.objects.parameters import StoreParameters
from quipu.runtime.objects.store import (
    LIST_MAX,
    NO_TIME,
    Buffer,
    ByteRange,
    ObjectInfo,
    ObjectPage,
    check_delete,
    check_list,
    check_part,
    check_put,
    check_ranges,
    check_whole,
)

if TYPE_CHECKING:
    from obstore import GetResult, ObjectMeta, PutMode

PART_SIZE: Final = 8 << 20  # of a multipart upload; S3 allows 10,000 parts
PARTS_IN_FLIGHT: Final = 4
GAP_SIZE_MAX: Final = 64 << 10  # ranges that are closer to each other are read by one request
RANGES_IN_FLIGHT: Final = 8
DELETES_IN_FLIGHT: Final = 8
ATTEMPTS_MAX: Final = 5  # to read all ranges from one version of an object

T = TypeVar("T")


class CloudStore:
    """An `ObjectStore` in a bucket or container."""

    def __init__(
        self, scheme: str, place: str, prefix: str = "",
        parameters: StoreParameters = StoreParameters(),  # noqa: B008 a tuple, never changed
    ) -> None:
        """Open the store; nothing is sent yet."""
        self._client, self._sends_once = open_clients(scheme, place, prefix, parameters)
        self._seconds_max = parameters.timeout_ms / 1000
        self._deletes_many = scheme == "s3"
        self._by_generation = scheme == "gs"
        self._lists_bare_versions = scheme == "az"

    # -- the protocol

    async def put(
        self, key: str, data: Sequence[Buffer], *,
        if_absent: bool = False, if_match: str | None = None,
    ) -> ObjectInfo:
        check_put(key, data, if_absent=if_absent, if_match=if_match)
        if if_match is not None:
            async with self._call(key):
                mode = await self._update(key, if_match)
        else:
            mode = "create" if if_absent else "overwrite"
        return await self._put(key, data, mode)

    async def put_parts(self, key: str, parts: AsyncIterable[Buffer]) -> ObjectInfo:
        check_key(key)
        pending = parts.__aiter__()
        first, is_all = await _first_part(key, pending)
        if is_all:
            return await self._put(key, first, "overwrite")  # small: one request, not three
        feed = _PartsFeed(key, first, pending, self._seconds_max)
        try:
            async with self._call(key) as feed.deadline:
                done = await obstore.put_async(
                    self._client, key, feed.parts(), chunk_size=PART_SIZE,
                    max_concurrency=PARTS_IN_FLIGHT)
        except ObjectStoreError:
            if feed.failure is not None:
                raise feed.failure from None
            raise
        return ObjectInfo(key, feed.size, done["e_tag"] or "", NO_TIME)

    async def get(self, key: str) -> bytes:
        check_key(key)
        async with self._call(key):
            found = await obstore.get_async(self._client, key)
            check_whole(_info(found.meta))
            return bytes(await _body(key, found))

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> Sequence[memoryview]:
        check_ranges(key, ranges)
        spans = _merged(ranges)
        async with self._call(key):
            for _ in range(ATTEMPTS_MAX):
                with suppress(PreconditionFailed):  # replaced meanwhile: begin again
                    return _cut(ranges, spans, await self._spans(key, spans))
        raise StoreUnavailable(f"{key}: it is replaced too often to be read")

    async def head(self, key: str) -> ObjectInfo:
        check_key(key)
        async with self._call(key):
            return _info(await obstore.head_async(self._client, key))

    async def list(
        self, prefix: str = "", *, after: str | None = None, limit: int = LIST_MAX
    ) -> ObjectPage:
        check_list(prefix, after, limit)
        folder = prefix.rpartition("/")[0]
        found: list[ObjectInfo] = []
        async with self._call(prefix or "a listing"):
            pages = obstore.list(self._client, folder or None, offset=after,
                                 chunk_size=limit + 1)
            async for page in pages:
                infos = [self._listed(each) for each in page]
                # runtime.O6: a server may not know the parameter and begin at the first key.
                found += [each for each in infos if each.key.startswith(prefix)
                          and (after is None or each.key > after)]
                if len(found) > limit or (infos and infos[-1].key > prefix and (
                        not infos[-1].key.startswith(prefix))):
                    break
        more = len(found) > limit
        return ObjectPage(tuple(found[:limit]), found[limit - 1].key if more else None)

    async def delete(self, keys: Sequence[str]) -> None:
        check_delete(keys)
        if not keys:
            return
        async with self._call(", ".join(keys[:3])):
            if self._deletes_many:
                await obstore.delete_async(self._client, list(keys))
                return

            async def delete_one(key: str) -> None:
                try:
                    await obstore.delete_async(self._client, key)
                except FileNotFoundError as error:
                    why = mapped(key, error)
                    if not isinstance(why, ObjectNotFound):  # no bucket, or no such user
                        raise why from None

            await _gather(DELETES_IN_FLIGHT, [delete_one(key) for key in keys])

    async def close(self) -> None:
        """Do nothing: connections are closed when they are idle."""

    # -- requests

    @asynccontextmanager
    async def _call(self, what: str) -> AsyncIterator[asyncio.Timeout]:
        """Map errors of obstore, and bound the time of a call."""
        try:
            async with asyncio.timeout(self._seconds_max) as deadline:
                yield deadline
        except ObjectStoreError:
            raise
        except TimeoutError:
            raise StoreUnavailable(f"{what}: no response within {self._seconds_max} s") from None
        except CloudErrors as error:
            raise mapped(what, error) from None  # runtime.O7: not even as its cause

    async def _put(self, key: str, data: Sequence[Buffer], mode: "PutMode") -> ObjectInfo:
        client = self._client if mode == "overwrite" else self._sends_once  # runtime.O2
        async with self._call(key):
            done = await obstore.put_async(client, key, [*data], mode=mode, use_multipart=False)
        return ObjectInfo(key, sum(map(len, data)), done["e_tag"] or "", NO_TIME)

    async def _update(self, key: str, version: str) -> "PutMode":
        """The condition of a put that replaces one version."""
        if not self._by_generation:
            return {"e_tag": version}
        try:
            found = await obstore.head_async(self._client, key)
        except FileNotFoundError:
            found = None
        if found is None or found["e_tag"] != version or found["version"] is None:
            raise PreconditionFailed(f"{key}: the object does not have the expected version")
        return {"e_tag": version, "version": found["version"]}

    def _listed(self, meta: "ObjectMeta") -> ObjectInfo:
        """An object of a listing, with the version that `head` gives it."""
        info = _info(meta)
        if self._lists_bare_versions and info.version and not info.version.endswith('"'):
            return info._replace(version=f'"{info.version}"')
        return info

    async def _spans(self, key: str, spans: Sequence[ByteRange]) -> Sequence[memoryview]:
        """The bytes of each span; PreconditionFailed if the object is replaced meanwhile."""
        found = await obstore.get_async(self._client, key, options={"range": spans[0]})
        data = [await _body(key, found)]
        if len(spans) == 1:
            return data
        version = found.meta["e_tag"] or ""

        async def read(span: ByteRange) -> memoryview:
            try:
                return await _body(key, await obstore.get_async(
                    self._client, key, options={"range": span, "if_match": version}))
            except CloudErrors as error:
                raise mapped(key, error) from None

        return data + await _gather(RANGES_IN_FLIGHT, [read(each) for each in spans[1:]])


class _PartsFeed:
    """Passes the parts of an object to obstore; the deadline counts only while the store is slow,
    not while the caller is.
    """

    def __init__(
        self, key: str, first: list[Buffer], rest: AsyncIterator[Buffer], seconds_max: float
    ) -> None:
        self._key, self._first, self._rest = key, first, rest
        self._seconds_max = seconds_max
        self.deadline: asyncio.Timeout | None = None
        self.size = 0
        self.failure: BaseException | None = None  # of the caller's parts

    async def parts(self) -> AsyncIterator[Buffer]:
        while (part := await self._next()) is not None:
            self.size += len(part)
            yield part

    async def _next(self) -> Buffer | None:
        if self._first:
            return self._first.pop(0)
        assert self.deadline is not None
        self.deadline.reschedule(None)
        try:
            part = await anext(self._rest, None)
            if part is not None:
                check_part(self._key, part)
        except BaseException as error:
            self.failure = error
            raise
        self.deadline.reschedule(asyncio.get_running_loop().time() + self._seconds_max)
        return part


async def _gather(count_max: int, work: Sequence[Awaitable[T]]) -> list[T]:
    """Run all of `work`, a few at a time; when one raises, the others are cancelled."""
    turns = asyncio.Semaphore(count_max)

    async def one(each: Awaitable[T]) -> T:
        async with turns:
            return await each

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(each)) for each in work]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


async def _first_part(
    key: str, parts: AsyncIterator[Buffer]
) -> tuple[list[Buffer], bool]:
    """Parts up to PART_SIZE bytes, and whether these are all."""
    first: list[Buffer] = []
    size = 0
    async for part in parts:
        check_part(key, part)
        first.append(part)
        size += len(part)
        if size > PART_SIZE:
            return first, False
    return first, True


async def _body(key: str, found: "GetResult") -> memoryview:
    """The bytes of a response, all of them, where the library has put them."""
    start, end = found.range
    data = memoryview(await found.bytes_async())
    if len(data) != end - start:
        raise StoreUnavailable(f"{key}: {len(data)} of {end - start} bytes arrived")
    return data


def _info(meta: "ObjectMeta") -> ObjectInfo:
    modified_ms = int(meta["last_modified"].timestamp() * 1000)
    return ObjectInfo(meta["path"], meta["size"], meta["e_tag"] or "", modified_ms)


def _merged(ranges: Sequence[ByteRange]) -> list[ByteRange]:
    """The spans to request: ranges that overlap or lie close together are one."""
    spans: list[ByteRange] = []
    for start, end in sorted(ranges):
        if spans and start <= spans[-1].end + GAP_SIZE_MAX:
            spans[-1] = ByteRange(spans[-1].start, max(spans[-1].end, end))
        else:
            spans.append(ByteRange(start, end))
    return spans


def _cut(
    ranges: Sequence[ByteRange], spans: Sequence[ByteRange], data: Sequence[memoryview]
) -> list[memoryview]:
    """The bytes of each range, out of those of the spans."""
    found = []
    for start, end in ranges:
        number = max(at for at, span in enumerate(spans) if span.start <= start)
        span_start = spans[number].start
        if start - span_start >= len(data[number]):
            raise InvalidObjectRequest("a range that begins after the end of the object")
        found.append(data[number][start - span_start : end - span_start])
    return found

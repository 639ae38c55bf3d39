"""Stores in the cloud, on a real S3 server behind a wire that fails."""

import asyncio
import contextlib
import time
import traceback
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest
import uvloop
from obstore.exceptions import GenericError

from quipu.runtime.objects import cloud
from quipu.runtime.objects.cloud import CloudStore
from quipu.runtime.objects.cloud_errors import mapped
from quipu.runtime.objects.errors import (
    InvalidObjectRequest,
    ObjectNotFound,
    ObjectStoreError,
    PreconditionFailed,
    StoreDenied,
    StoreUnavailable,
)
from quipu.runtime.objects.store import Buffer, ByteRange
from quipu.runtime.objects.urls import parse_store_url
from tests.harness.s3_server import S3Server
from tests.harness.store_proxy import StoreProxy, WireFault
from tests.looped import looped


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[StoreProxy]:
    with StoreProxy(s3_server.port) as proxy:
        yield proxy


def opened(url: str) -> CloudStore:
    parsed = parse_store_url(url)
    return CloudStore(parsed.scheme, parsed.place, parsed.prefix, parsed.parameters)


@looped
async def test_requests_are_repeated(s3_server: S3Server, proxy: StoreProxy) -> None:
    """R15: with back-off, within one call: refused ones, and lost or cut responses."""
    store = opened(s3_server.url(s3_server.bucket(), port=proxy.port))
    for number, fault in enumerate((WireFault.REFUSE, WireFault.LOSE_RESPONSE)):
        proxy.break_next(fault, count=2)
        await store.put("a", [b"%d" % number])
        proxy.break_next(fault, count=2)
        assert await store.get("a") == b"%d" % number
    await store.put("b", [bytes(1 << 20)])
    proxy.break_next(WireFault.CUT_BODY, b"GET", 1)
    assert await store.get("b") == bytes(1 << 20)


@looped
async def test_a_conditional_put_is_sent_once(s3_server: S3Server, proxy: StoreProxy) -> None:
    """runtime.O2: whose response was lost may have been carried out, and is not called a loser."""
    store = opened(s3_server.url(s3_server.bucket(), port=proxy.port))
    proxy.break_next(WireFault.LOSE_RESPONSE, b"PUT", 1)
    with pytest.raises(StoreUnavailable):
        await store.put("a", [b"1"], if_absent=True)
    assert await store.get("a") == b"1"
    proxy.break_next(WireFault.LOSE_RESPONSE, b"PUT", 1)
    with pytest.raises(StoreUnavailable):
        await store.put("a", [b"2"], if_match=(await store.head("a")).version)
    assert await store.get("a") == b"2"
    with pytest.raises(PreconditionFailed):
        await store.put("a", [b"3"], if_absent=True)
    assert sum(line.startswith(b"PUT") for line in proxy.requests) == 3


@looped
async def test_every_call_has_a_deadline(s3_server: S3Server, proxy: StoreProxy) -> None:
    """R15: a server that does not answer is unavailable, whatever was asked."""
    url = s3_server.url(s3_server.bucket(), port=proxy.port).replace("=20000", "=300")
    store = opened(f"{url}&retries=0")
    patient = opened(s3_server.url(s3_server.bucket(), port=proxy.port))

    async def parts() -> AsyncIterator[Buffer]:
        yield bytes(cloud.PART_SIZE + 1)
        yield bytes(1)

    await patient.put("warm", [b"1"])
    proxy.break_next(WireFault.STALL)
    begun = time.monotonic()
    outcomes = await asyncio.gather(
        store.put("a", [b"1"]), store.put("a", [b"1"], if_absent=True), store.get("a"),
        store.head("a"), store.list(), store.delete(["a"]), store.put_parts("a", parts()),
        store.get_ranges("a", [ByteRange(0, 1)]), return_exceptions=True)
    assert {type(each) for each in outcomes} == {StoreUnavailable}
    assert time.monotonic() - begun < 15  # on a busy machine; alone it is 0.3
    proxy.heal()
    assert await patient.get("warm") == b"1"


@looped
async def test_a_slow_caller_has_no_deadline(s3_server: S3Server) -> None:
    """Parts may come as slowly as they are throttled."""
    store = opened(s3_server.url(s3_server.bucket()).replace("=20000", "=4000"))

    async def parts() -> AsyncIterator[Buffer]:
        yield bytes(cloud.PART_SIZE + 1)
        await asyncio.sleep(4.1)
        yield b"end"

    assert (await store.put_parts("a", parts())).size == cloud.PART_SIZE + 4
    assert await store.get_ranges("a", [ByteRange(cloud.PART_SIZE, 1 << 24)]) == [b"\0end"]


@looped
async def test_a_large_object_that_is_given_up(s3_server: S3Server) -> None:
    """runtime.O1: it is not there, whatever its parts raise, and the error is the caller's."""
    store = opened(s3_server.url(s3_server.bucket()))
    for error in (ValueError("mine"), OSError("mine"), FileNotFoundError("mine")):

        async def parts(error: Exception = error) -> AsyncIterator[Buffer]:
            yield bytes(cloud.PART_SIZE + 1)
            raise error

        with pytest.raises(type(error), match="mine"):
            await store.put_parts("a", parts())
    assert (await store.list()).objects == ()


@looped
async def test_ranges_of_one_version(s3_server: S3Server, proxy: StoreProxy) -> None:
    """Ranges that lie close together are one request; distant ones are of the same version."""
    store = opened(s3_server.url(s3_server.bucket(), port=proxy.port))
    size = 4 * cloud.GAP_SIZE_MAX
    await store.put("a", [bytes(range(256)) * (size // 256)])
    proxy.requests.clear()
    near = [ByteRange(100, 110), ByteRange(0, 5), ByteRange(105, 120)]
    assert [len(each) for each in await store.get_ranges("a", near)] == [10, 5, 15]
    assert len(proxy.requests) == 1
    far = [ByteRange(size - 1, size + 9), ByteRange(0, 2)]
    assert await store.get_ranges("a", far) == [b"\xff", b"\x00\x01"]
    assert len(proxy.requests) == 3
    with pytest.raises(InvalidObjectRequest):
        await store.get_ranges("a", [ByteRange(0, 1), ByteRange(size, size + 1)])
    with pytest.raises(InvalidObjectRequest):
        await store.get_ranges("a", [ByteRange(size - 1, size), ByteRange(size, size + 1)])


@looped
async def test_distant_ranges_while_the_object_is_replaced(s3_server: S3Server) -> None:
    """runtime.O1: all ranges are of one version, or the read says that it cannot be done."""
    store = opened(s3_server.url(s3_server.bucket()))
    size = 2 * cloud.GAP_SIZE_MAX
    ends = [ByteRange(0, 1), ByteRange(size - 1, size)]
    await store.put("a", [b"0" * size])

    async def write() -> None:
        for number in range(1, 40):
            await store.put("a", [b"%d" % (number % 10) * size])

    writing = asyncio.ensure_future(write())
    while not writing.done():
        with contextlib.suppress(StoreUnavailable):  # on a busy machine, perhaps all of them
            first, last = await store.get_ranges("a", ends)
            assert first == last
    await writing
    assert await store.get_ranges("a", ends) == [b"9", b"9"]
    with pytest.raises(PreconditionFailed):
        await cloud._gather(2, [store.put("a", [b""], if_absent=True) for _ in range(3)])


@looped
async def test_keys_are_deleted_one_by_one_where_a_store_has_no_other_way(
    s3_server: S3Server,
) -> None:
    """As Google's and Azure's."""
    store = opened(s3_server.url(s3_server.bucket()))
    store._deletes_many = False
    for number in range(12):
        await store.put(f"k/{number}", [b""])
    await store.delete([*(f"k/{number}" for number in range(11)), "none"])
    assert [each.key for each in (await store.list()).objects] == ["k/11"]


def test_on_the_loop_of_a_broker(s3_server: S3Server) -> None:
    """Nodes run on uvloop."""

    async def story() -> None:
        store = opened(s3_server.url(s3_server.bucket()))
        await store.put("a", [b"1"])
        assert await store.get("a") == b"1"

    uvloop.run(story())


@looped
async def test_what_errors_say(s3_server: S3Server, tmp_path: Path) -> None:
    """runtime.O7: what to do about it, in a line, and nothing of the request or the credentials."""
    path = tmp_path / "credentials"
    path.write_text("aws_access_key_id = AKIASWORD\naws_secret_access_key = swordfish\n")
    more = f"&credentials={path}&retries=0"
    missing = opened(s3_server.url("no-such-bucket", more=more))
    refused = opened(s3_server.url("bucket", port=1, more=more))
    for store, wanted, said in ((missing, ObjectStoreError, "create it"),
                                (refused, StoreUnavailable, "a: no response")):
        with pytest.raises(wanted, match=said) as error:
            await store.put("a", [b"1"])
        shown = "".join(traceback.format_exception(error.value))
        assert "AKIASWORD" not in shown
        assert "swordfish" not in shown
        assert "Signature" not in shown
        assert len(str(error.value)) < 200


@pytest.mark.parametrize(("status", "code", "wanted"), [
    (500, "InternalError", StoreUnavailable), (503, "SlowDown", StoreUnavailable),
    (429, "", StoreUnavailable), (409, "ConditionalRequestConflict", StoreUnavailable),
    (400, "RequestTimeout", StoreUnavailable), (403, "AccessDenied", StoreDenied),
    (400, "ExpiredToken", StoreDenied), (400, "InvalidArgument", ObjectStoreError),
    (409, "BlobAlreadyExists", PreconditionFailed), (409, "ObjectParentIsFile", ObjectStoreError),
    (416, "InvalidRange", InvalidObjectRequest)])
def test_responses_by_what_to_do(status: int, code: str, wanted: type[ObjectStoreError]) -> None:
    """By status and code, which is all that is taken of a message."""
    error = GenericError(f"Generic S3 error: GET http://x?X-Amz-Signature=swordfish - Server "
                         f"returned non-2xx status code: {status} Why: <Code>{code}</Code>")
    found = mapped("key", error)
    assert type(found) is wanted
    assert "swordfish" not in str(found)


def test_a_range_that_the_library_refuses() -> None:
    """A server may cut a range that begins after the end; then the library says so, not HTTP."""
    error = GenericError("Generic MicrosoftAzure error: Wanted range starting at 10, but object "
                         "was only 10 bytes long")
    assert type(mapped("key", error)) is InvalidObjectRequest


@looped
async def test_a_server_that_lists_from_the_beginning(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """runtime.O6: it ignores where a page begins; each key is listed once all the same."""
    store = opened(s3_server.url(s3_server.bucket()))
    for number in range(5):
        await store.put(f"k/{number}", [b""])
    real = obstore.list

    def from_the_beginning(client: Any, folder: str | None, *, offset: object, chunk_size: int
                           ) -> Any:
        return real(client, folder, chunk_size=chunk_size)

    monkeypatch.setattr(obstore, "list", from_the_beginning)
    page = await store.list("k/", limit=2)
    assert [info.key for info in page.objects] == ["k/0", "k/1"]
    page = await store.list("k/", after=page.after, limit=2)
    assert ([info.key for info in page.objects], page.after) == (["k/2", "k/3"], "k/3")
    page = await store.list("k/", after=page.after, limit=2)
    assert ([info.key for info in page.objects], page.after) == (["k/4"], None)


@pytest.mark.parametrize(("code", "wanted"), [
    ("NoSuchKey", ObjectNotFound), ("BlobNotFound", ObjectNotFound),
    ("NoSuchBucket", ObjectStoreError), ("ContainerNotFound", ObjectStoreError),
    ("XAdminUserNotFound", StoreDenied), ("SomethingElse", ObjectStoreError)])
def test_what_is_not_found(code: str, wanted: type[ObjectStoreError]) -> None:
    """Only an object that the server says is not there is taken as not there: no segment is given
    up because a bucket or a user is unknown.
    """
    error = FileNotFoundError("Object at location a not found: Server returned non-2xx status "
                              f"code: 404 Not Found: <Error><Code>{code}</Code></Error>")
    assert type(mapped("key", error)) is wanted

"""What every object store promises (tests/contract/object_store), on servers of other makers."""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

import pytest

from quipu.runtime.objects import cloud
from quipu.runtime.objects.errors import ObjectStoreError, StoreDenied
from quipu.runtime.objects.store import Buffer, ByteRange, ObjectStore
from quipu.runtime.objects.urls import open_store
from tests.contract.object_store import test_object_store as contract
from tests.contract.object_store.stores import NOW_MS, StoreUnderTest
from tests.interop.inherit import inherited
from tests.interop.servers import StoreServer
from tests.looped import looped

pytestmark = pytest.mark.interop
globals().update(inherited(contract, "under_test"))

PART = bytes(range(256)) * (cloud.PART_SIZE // 512)  # half of a part


def test_a_large_object_comes_in_parts(under_test: StoreUnderTest) -> None:
    """R13, R16: a multipart upload; read in ranges, and gone without a trace if it is given up."""

    async def parts(count: int, *, fails: bool = False) -> AsyncIterator[Buffer]:
        for number in range(count):
            yield b"%08d" % number + PART[8:]
        if fails:
            raise RuntimeError("no more")

    async def story(store: ObjectStore) -> None:
        info = await store.put_parts("large", parts(5))
        assert info.size == 5 * len(PART) == (await store.head("large")).size
        starts = [number * len(PART) for number in range(5)]
        assert await store.get_ranges("large", [ByteRange(at, at + 8) for at in starts]) == [
            b"%08d" % number for number in range(5)]
        with pytest.raises(RuntimeError, match="no more"):
            await store.put_parts("large", parts(4, fails=True))
        with pytest.raises(RuntimeError, match="no more"):
            await store.put_parts("other", parts(4, fails=True))
        assert [(each.key, each.size) for each in (await store.list()).objects] == [
            ("large", info.size)]

    under_test.run(story)


@looped
async def test_what_errors_say(server: StoreServer) -> None:
    """runtime.O7: a bucket that is not there and credentials that are wrong are called so, not an
    object that is not there; nothing of the credentials is shown.
    """
    stores = [(open_store(server.url("no-such-bucket"), lambda: NOW_MS), ObjectStoreError,
               "create it")]
    stores += [(open_store(server.url(server.bucket(), credentials=path), lambda: NOW_MS),
                StoreDenied, "check the store's credentials")
               for path in server.wrong_credentials()]
    for store, wanted, said in stores:
        works: list[Callable[[], Awaitable[object]]] = [
            partial(store.put, "a", [b"1"]), partial(store.get, "a"), store.list,
            partial(store.get_ranges, "a", [ByteRange(0, 1)])]
        if wanted is StoreDenied:  # of no bucket, a server may call all objects deleted
            works.append(partial(store.delete, ["a"]))
        for work in works:
            with pytest.raises(wanted, match=said) as error:
                await work()
            assert "swordfish" not in str(error.value)
            assert server.secret not in str(error.value)

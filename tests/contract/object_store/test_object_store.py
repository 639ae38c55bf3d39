"""What every object store promises (runtime/objects/store.py); a new one is added to stores.py."""

import asyncio
import string
from collections.abc import AsyncIterator

import pytest

from quipu.model.errors import ErrorKind
from quipu.runtime.objects import store as bounds
from quipu.runtime.objects.errors import (
    InvalidObjectRequest,
    ObjectNotFound,
    ObjectStoreError,
    PreconditionFailed,
)
from quipu.runtime.objects.keys import KEY_SIZE_MAX, NAME_SIZE_MAX
from quipu.runtime.objects.store import Buffer, ByteRange, ObjectStore
from tests.contract.object_store.stores import StoreUnderTest, parts_of

BAD_KEYS = ["", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/.", ".hidden", "a/.tmp",
            "a\0b", "a b", "a\\b", "a~", "é", "a\n", "a:b", "x" * (NAME_SIZE_MAX + 1),
            "/".join(["x" * NAME_SIZE_MAX] * 5)]


def test_what_was_put_is_got(under_test: StoreUnderTest) -> None:
    """runtime.O1: all buffers, one after the other."""

    async def story(store: ObjectStore) -> None:
        info = await store.put("a/b", [b"12", bytearray(b"3"), memoryview(b"45")])
        assert (info.key, info.size) == ("a/b", 5)
        assert await store.get("a/b") == b"12345"
        found = await store.head("a/b")
        assert found._replace(modified_ms=0) == info._replace(modified_ms=0)
        assert found.modified_ms > 0
        empty = await store.put("empty", [])
        assert (empty.size, await store.get("empty")) == (0, b"")

    under_test.run(story)


def test_an_object_is_there_for_the_next_process(under_test: StoreUnderTest) -> None:
    """runtime.O3: and so is a deletion."""

    async def before(store: ObjectStore) -> None:
        await store.put("a", [b"1"])
        await store.put("b", [b"2"])
        await store.put_parts("c", parts_of(b"3", b"4"))
        await store.delete(["b"])

    async def after(store: ObjectStore) -> None:
        assert [info.key for info in (await store.list()).objects] == ["a", "c"]
        assert (await store.get("a"), await store.get("c")) == (b"1", b"34")

    under_test.run(before)
    under_test.run(after)


def test_a_put_replaces_and_has_another_version(under_test: StoreUnderTest) -> None:
    """runtime.O1: also with the same bytes, where the store counts puts and not bytes."""
    same = 0 if under_test.versions_by_bytes else 1

    async def story(store: ObjectStore) -> None:
        versions = [(await store.put("a", [b"%d" % (number * (1 - same))])).version
                    for number in range(50)]
        assert len(set(versions)) == 50
        assert (await store.head("a")).version == versions[-1]
        await store.put("a", [b"other"])
        assert await store.get("a") == b"other"

    under_test.run(story)


def test_only_one_creates(under_test: StoreUnderTest) -> None:
    """runtime.O2: of many at the same time, and again after a deletion."""

    async def story(store: ObjectStore) -> None:
        for _ in range(2):
            outcomes = await asyncio.gather(
                *(store.put("a", [b"%d" % number], if_absent=True) for number in range(10)),
                return_exceptions=True)
            won = [number for number, each in enumerate(outcomes)
                   if not isinstance(each, BaseException)]
            assert len(won) == 1
            assert all(isinstance(each, PreconditionFailed) for number, each in
                       enumerate(outcomes) if number not in won)
            assert await store.get("a") == b"%d" % won[0]
            await store.delete(["a"])

    under_test.run(story)


def test_only_one_replaces_a_version(under_test: StoreUnderTest) -> None:
    """runtime.O2: whoever comes later has to read again."""

    async def story(store: ObjectStore) -> None:
        version = (await store.put("a", [b"first"])).version
        outcomes = await asyncio.gather(
            *(store.put("a", [b"%d" % number], if_match=version) for number in range(10)),
            return_exceptions=True)
        won = [each for each in outcomes if not isinstance(each, BaseException)]
        assert len(won) == 1
        with pytest.raises(PreconditionFailed) as error:
            await store.put("a", [b"late"], if_match=version)
        assert error.value.kind is ErrorKind.REFRESH
        assert (await store.head("a")).version == won[0].version
        await store.put("a", [b"now"], if_match=won[0].version)
        await store.delete(["a"])
        with pytest.raises(PreconditionFailed):
            await store.put("a", [b"gone"], if_match=won[0].version)
        with pytest.raises(InvalidObjectRequest):
            await store.put("a", [b"both"], if_match=version, if_absent=True)
        with pytest.raises(ObjectNotFound):
            await store.head("a")

    under_test.run(story)


def test_what_is_not_there(under_test: StoreUnderTest) -> None:
    """Every way to ask says so; to delete it is no error."""

    async def story(store: ObjectStore) -> None:
        await store.put("a/b", [b"1"])
        for key in ("x", "a", "a/b/c", "a/x"):
            for work in (store.get(key), store.head(key),
                         store.get_ranges(key, [ByteRange(0, 1)])):
                with pytest.raises(ObjectNotFound):
                    await work
        await store.delete(["x", "a", "a/b/c"])
        assert await store.get("a/b") == b"1"

    under_test.run(story)


def test_a_key_may_begin_with_another_key(under_test: StoreUnderTest) -> None:
    """Keys are names, not paths: a folder is no object, and an object no folder.

    A server that has them as paths refuses, for good, a key that would need both.
    """

    async def refused(store: ObjectStore) -> None:
        await store.put("a", [b"1"])
        await store.put("b/c", [b"2"])
        for key in ("a/b", "b"):
            with pytest.raises(ObjectStoreError, match="no key can begin with another") as error:
                await store.put(key, [b"3"])
            assert error.value.kind is ErrorKind.INVALID

    async def story(store: ObjectStore) -> None:
        keys = ["a", "a/b", "a/b/c", "a-b", "a.b", "a0"]
        for key in keys:
            await store.put(key, [key.encode()])
        for key in keys:
            assert await store.get(key) == key.encode()
        assert [info.key for info in (await store.list("a/")).objects] == ["a/b", "a/b/c"]
        await store.delete(["a/b"])
        assert await store.get("a/b/c") == b"a/b/c"

    under_test.run(refused if under_test.keys_are_paths else story)


def test_ranges(under_test: StoreUnderTest) -> None:
    """What lies beyond the end is left out; a range must begin before it."""

    async def story(store: ObjectStore) -> None:
        await store.put("a", [string.digits.encode()])
        got = await store.get_ranges("a", [
            ByteRange(0, 1), ByteRange(8, 10), ByteRange(8, 99), ByteRange(0, 10)])
        assert got == [b"0", b"89", b"89", b"0123456789"]
        for bad in ([], [ByteRange(10, 11)], [ByteRange(3, 3)], [ByteRange(-1, 2)],
                    [ByteRange(0, 1)] * (bounds.RANGES_MAX + 1),
                    [ByteRange(0, bounds.GET_SIZE_MAX + 1)]):
            with pytest.raises(InvalidObjectRequest):
                await store.get_ranges("a", bad)

    under_test.run(story)


def test_pages_of_a_listing(under_test: StoreUnderTest) -> None:
    """runtime.O6: in the order of the keys, each once, whatever the size of a page."""
    keys = sorted(["a", "a-", "a/a", "a/b", "a/b/c", "a/b-c", "a0", "b/x/y", "b/x/z", "c"])
    if under_test.keys_are_paths:
        keys = [key for key in keys if not any(each.startswith(f"{key}/") for each in keys)]

    async def story(store: ObjectStore) -> None:
        assert (await store.list()).objects == ()
        for key in reversed(keys):
            await store.put(key, [b"12"])
        for prefix in ("", "a", "a/", "a/b", "a/b/", "b/x", "c", "z"):
            wanted = [key for key in keys if key.startswith(prefix)]
            for limit in (1, 2, 3, len(keys), bounds.LIST_MAX):
                found: list[str] = []
                after = None
                while True:
                    page = await store.list(prefix, after=after, limit=limit)
                    assert len(page.objects) <= limit
                    found += [info.key for info in page.objects]
                    after = page.after
                    if after is None:
                        break
                    assert after == found[-1]
                assert found == wanted, (prefix, limit)
        page = await store.list("a", after="a/b")
        assert [info.key for info in page.objects] == ["a/b-c", "a/b/c", "a0"]
        assert {info.size for info in page.objects} == {2}
        assert page.objects[0] == await store.head("a/b-c")
        for limit in (0, bounds.LIST_MAX + 1):
            with pytest.raises(InvalidObjectRequest):
                await store.list(limit=limit)

    under_test.run(story)


def test_keys_stay_inside_the_store(under_test: StoreUnderTest) -> None:
    """runtime.O4: no call takes a key that could lead elsewhere."""

    async def story(store: ObjectStore) -> None:
        for key in BAD_KEYS:
            for work in (store.put(key, [b"1"]), store.put_parts(key, parts_of(b"1")),
                         store.get(key), store.head(key), store.delete([key]),
                         store.get_ranges(key, [ByteRange(0, 1)])):
                with pytest.raises(InvalidObjectRequest):
                    await work
            if key not in ("", "a/"):  # which begin other keys
                with pytest.raises(InvalidObjectRequest):
                    await store.list(key)
            with pytest.raises(InvalidObjectRequest):
                await store.list(after=key)
        longest = "/".join(["x" * (NAME_SIZE_MAX - 1)] * (KEY_SIZE_MAX // NAME_SIZE_MAX))
        await store.put(longest, [b"1"])
        await store.put(f"{string.ascii_letters}{string.digits}-_.=+@,", [b"2"])
        assert len((await store.list()).objects) == 2

    under_test.run(story)


def test_deletes_are_bounded(under_test: StoreUnderTest) -> None:
    """runtime.O5: and take many keys at once."""

    async def story(store: ObjectStore) -> None:
        keys = [f"k/{number}" for number in range(20)]
        for key in keys:
            await store.put(key, [b""])
        await store.delete([*keys[5:], "k/none"])
        assert len((await store.list("k/")).objects) == 5
        await store.delete([])
        with pytest.raises(InvalidObjectRequest):
            await store.delete(["k"] * (bounds.DELETE_MAX + 1))

    under_test.run(story)


def test_puts_are_bounded(under_test: StoreUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    """runtime.O5: what is larger comes in parts, and is read in ranges."""
    monkeypatch.setattr(bounds, "PUT_SIZE_MAX", 100)
    monkeypatch.setattr(bounds, "PART_SIZE_MAX", 60)
    monkeypatch.setattr(bounds, "GET_SIZE_MAX", 100)

    async def story(store: ObjectStore) -> None:
        await store.put("a", [bytes(100)])
        with pytest.raises(InvalidObjectRequest):
            await store.put("a", [bytes(100), b"1"])
        with pytest.raises(InvalidObjectRequest):
            await store.put_parts("a", parts_of(bytes(61)))
        info = await store.put_parts("a", parts_of(bytes(60), bytes(50), b"end"))
        assert info.size == 113
        with pytest.raises(InvalidObjectRequest):
            await store.get("a")
        assert await store.get_ranges("a", [ByteRange(110, 200)]) == [b"end"]

    under_test.run(story)


def test_an_object_that_is_not_finished_is_not_there(under_test: StoreUnderTest) -> None:
    """runtime.O1: what was there before stays."""

    async def failing() -> AsyncIterator[Buffer]:
        yield b"begun"
        raise RuntimeError("no more")

    async def story(store: ObjectStore) -> None:
        await store.put("a", [b"before"])
        for key in ("a", "b"):
            with pytest.raises(RuntimeError, match="no more"):
                await store.put_parts(key, failing())
        assert await store.get("a") == b"before"
        assert [info.key for info in (await store.list()).objects] == ["a"]

    under_test.run(story)


def test_readers_see_whole_objects(under_test: StoreUnderTest) -> None:
    """runtime.O1: while it is replaced again and again; ranges are of one version."""

    async def story(store: ObjectStore) -> None:
        await store.put("a", [b"0" * 10_000])

        async def write() -> None:
            for number in range(1, 30):
                await store.put("a", [b"%d" % (number % 10)] * 10_000)

        async def read() -> None:
            for _ in range(30):
                first, last = await store.get_ranges(
                    "a", [ByteRange(0, 1), ByteRange(9_999, 10_000)])
                assert first == last
                assert len(set(await store.get("a"))) == 1

        await asyncio.gather(write(), read(), read())

    under_test.run(story)


def test_every_error_says_what_to_do(under_test: StoreUnderTest) -> None:
    """By its kind; all are of one class."""

    async def story(store: ObjectStore) -> None:
        with pytest.raises(ObjectStoreError, match="no such object") as error:
            await store.get("a")
        assert error.value.kind is ErrorKind.INVALID

    under_test.run(story)

"""What every storage backend promises (remote/metadata/storage/backend.py)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest

from quipu.remote.metadata.errors import (
    ExpectationFailed,
    InvalidStorageRequest,
    KeyExists,
    KeyNotFound,
    MetadataStorageError,
)
from quipu.remote.metadata.serde import VALUE_SIZE_MAX
from quipu.remote.metadata.storage.backend import (
    PAGE_MAX,
    CreateKey,
    ExpectValue,
    MetadataStorageBackend,
    Operation,
    OrderedBackend,
    RemoveKey,
    UpdateKey,
    find_floor,
    get_many,
    walk,
)
from tests.contract.metadata_backend.backends import BackendUnderTest
from tests.looped import looped

BAD_KEYS = ["", "é", "a\0b", "a\nb", "x" * 513]


@asynccontextmanager
async def opened(under_test: BackendUnderTest) -> AsyncIterator[MetadataStorageBackend]:
    backend = under_test.open()
    try:
        yield backend
    finally:
        await backend.close()


def fresh() -> str:
    """A key that no other test uses, with two parts as those of partitions have."""
    return f"{uuid4()}/0"


async def below(backend: MetadataStorageBackend, key: str) -> dict[str, bytes]:
    return {each.key.removeprefix(key): each.value for each in await backend.get_like(key)}


@looped
async def test_a_value_is_created_updated_and_read_back(under_test: BackendUnderTest) -> None:
    """R7: any bytes, also none; an unknown key has no value."""
    async with opened(under_test) as backend:
        key = f"{fresh()}/a"
        assert await backend.get(key) is None
        await backend.create(key, b"")
        assert await backend.get(key) == b""
        for value in (b"\0\xff" * 100, b"second", bytes(VALUE_SIZE_MAX)):
            await backend.update(key, value)
            assert await backend.get(key) == value


@looped
async def test_creating_again_is_a_retry_if_the_value_is_the_same(
    under_test: BackendUnderTest,
) -> None:
    """R7: remote.B3: who cannot know whether a create was carried out may repeat it."""
    async with opened(under_test) as backend:
        key = f"{fresh()}/a"
        await backend.create(key, b"1")
        await backend.create(key, b"1")
        with pytest.raises(KeyExists, match="another value"):
            await backend.create(key, b"2")
        assert await backend.get(key) == b"1"
        with pytest.raises(KeyNotFound):
            await backend.update(f"{key}b", b"1")
        assert await backend.get(f"{key}b") is None


@looped
async def test_keys_like_another_are_those_below_it(under_test: BackendUnderTest) -> None:
    """R7: at any depth; not the key itself, nor keys that merely begin with the same letters."""
    async with opened(under_test) as backend:
        key = fresh()
        for tail in ("", "/a", "/a/b", "/z", "b", "b/c", "-", "%", "_/x", "0"):
            await backend.create(key + tail, tail.encode())
        assert await below(backend, key) == {"/a": b"/a", "/a/b": b"/a/b", "/z": b"/z"}
        assert await below(backend, f"{key}/a") == {"/b": b"/a/b"}
        assert await below(backend, f"{key}/b") == {}

        await backend.remove_like(key)
        await backend.remove_like(key)
        assert await below(backend, key) == {}
        for tail in ("", "b", "b/c", "-", "%", "_/x", "0"):
            assert await backend.get(key + tail) == tail.encode()


@looped
async def test_the_floor_is_the_greatest_key_that_is_not_above(
    under_test: BackendUnderTest,
) -> None:
    """R3, R7: in a backend that knows no order, too."""
    async with opened(under_test) as backend:
        key = fresh()
        await backend.create(f"{key}/a/9", b"outside")
        await backend.create(f"{key}/c/0", b"outside")
        for offset in (10, 20, 30):
            await backend.create(f"{key}/b/{offset:03d}", b"%d" % offset)
        found = [await find_floor(backend, f"{key}/b", f"{key}/b/{offset:03d}")
                 for offset in (0, 9, 10, 19, 20, 999)]
        assert [each and each.value for each in found] == [
            None, None, b"10", b"10", b"20", b"30"]


@looped
async def test_all_entries_are_walked_in_order_page_by_page(under_test: BackendUnderTest) -> None:
    """R7: each once, however many there are."""
    async with opened(under_test) as backend:
        key, count = fresh(), 2 * PAGE_MAX + 3
        await backend.execute([CreateKey(f"{key}/{n:06d}", b"%d" % n) for n in range(count)])
        walked = [each.value async for each in walk(backend, key)]
        assert walked == [b"%d" % n for n in range(count)]
        wanted = [f"{key}/{n:06d}" for n in range(0, 2 * count, 2)]
        assert await get_many(backend, wanted) == {
            f"{key}/{n:06d}": b"%d" % n for n in range(0, count, 2)}


@looped
async def test_operations_are_carried_out_in_their_order(under_test: BackendUnderTest) -> None:
    """R7: several on one key see each other."""
    async with opened(under_test) as backend:
        key = fresh()
        await backend.create(f"{key}/old", b"0")
        await backend.execute([
            CreateKey(f"{key}/a", b"1"), CreateKey(f"{key}/b", b"1"), CreateKey(f"{key}/c", b"1"),
            UpdateKey(f"{key}/a", b"2"), ExpectValue(f"{key}/a", b"2"), UpdateKey(f"{key}/b", b"3"),
            RemoveKey(f"{key}/c"), RemoveKey(f"{key}/old"), CreateKey(f"{key}/old", b"new"),
            RemoveKey(f"{key}/never"),
        ])
        assert await below(backend, key) == {"/a": b"2", "/b": b"3", "/old": b"new"}
        await backend.execute([])


FAILING: list[tuple[str, Operation, type[MetadataStorageError]]] = [
    ("an expectation", ExpectValue("held", b"other"), ExpectationFailed),
    ("an expectation of what is missing", ExpectValue("missing", b""), ExpectationFailed),
    ("a create", CreateKey("held", b"other"), KeyExists),
    ("an update", UpdateKey("missing", b"1"), KeyNotFound),
]


@pytest.mark.parametrize(("operation", "error"), [each[1:] for each in FAILING],
                         ids=[each[0] for each in FAILING])
@looped
async def test_if_one_operation_fails_none_is_carried_out(
    under_test: BackendUnderTest, operation: Operation, error: type[MetadataStorageError]
) -> None:
    """R6, R7: remote.B1, remote.B2: wherever in the list it is."""
    async with opened(under_test) as backend:
        key = fresh()
        await backend.create(f"{key}/held", b"1")
        await backend.create(f"{key}/gone", b"1")
        failing = operation._replace(key=f"{key}/{operation.key}")
        others: list[Operation] = [
            CreateKey(f"{key}/new", b"1"), UpdateKey(f"{key}/held", b"2"),
            RemoveKey(f"{key}/gone")]
        for operations in ([failing, *others], [others[0], failing, others[2]]):
            with pytest.raises(error):
                await backend.execute(operations)
            assert await below(backend, key) == {"/held": b"1", "/gone": b"1"}


@looped
async def test_a_removal_can_expect_something(under_test: BackendUnderTest) -> None:
    """R11: remote.B2: a removal of a deposed leader removes nothing."""
    async with opened(under_test) as backend:
        key = fresh()
        await backend.create(f"{key}/header", b"1")
        await backend.create(f"{key}/segments/a", b"1")
        with pytest.raises(ExpectationFailed):
            await backend.remove_like(f"{key}/segments",
                                      expected=[ExpectValue(f"{key}/header", b"2")])
        assert len(await below(backend, key)) == 2
        await backend.remove_like(f"{key}/segments", expected=[ExpectValue(f"{key}/header", b"1")])
        assert await below(backend, key) == {"/header": b"1"}


@looped
async def test_of_two_writers_that_expect_the_same_one_wins(under_test: BackendUnderTest) -> None:
    """R11: remote.B2: two clients count upwards; no count is lost."""
    async with opened(under_test) as one, opened(under_test) as other:
        key = f"{fresh()}/count"
        await one.create(key, b"0")
        won = []

        async def count(backend: MetadataStorageBackend) -> None:
            while True:
                found = await backend.get(key)
                assert found is not None
                if int(found) >= 20:
                    return
                after = b"%d" % (int(found) + 1)
                try:
                    await backend.execute([ExpectValue(key, found), UpdateKey(key, after)])
                except ExpectationFailed:
                    continue
                won.append(int(after))

        await asyncio.gather(count(one), count(other), count(one), count(other))
        assert sorted(won) == list(range(1, 21))


@looped
async def test_of_two_creates_of_one_key_one_wins(under_test: BackendUnderTest) -> None:
    """R11: remote.B2: also if the key did not exist when both looked."""
    async with opened(under_test) as one, opened(under_test) as other:
        for _ in range(5):
            key = fresh()
            results = await asyncio.gather(*(
                backend.execute([CreateKey(f"{key}/a", value), CreateKey(f"{key}/{value!r}", b"")])
                for backend, value in ((one, b"1"), (other, b"2"), (one, b"3"), (other, b"4"))
            ), return_exceptions=True)
            assert sum(each is None for each in results) == 1, results
            assert sum(isinstance(each, KeyExists) for each in results) == 3, results
            stored = await below(one, key)
            assert stored == {"/a": stored["/a"], f"/{stored['/a']!r}": b""}


@looped
async def test_a_write_that_has_returned_is_seen_by_every_client(
    under_test: BackendUnderTest,
) -> None:
    """R1: remote.B4: at once, and also after all clients were closed."""
    key = f"{fresh()}/a"
    async with opened(under_test) as one, opened(under_test) as other:
        await one.create(key, b"0")
        for n in range(5):
            await one.update(key, b"%d" % n)
            assert await other.get(key) == b"%d" % n
    async with opened(under_test) as later:
        assert await later.get(key) == b"4"


@looped
async def test_what_no_backend_could_do_is_refused(under_test: BackendUnderTest) -> None:
    """R7: bad keys and values that are too large; nothing is written."""
    async with opened(under_test) as backend:
        good = fresh()
        for bad in BAD_KEYS:
            with pytest.raises(InvalidStorageRequest):
                await backend.get(bad)
            with pytest.raises(InvalidStorageRequest):
                await backend.get_like(bad)
            with pytest.raises(InvalidStorageRequest):
                await backend.execute([CreateKey(good, b"1"), CreateKey(bad, b"1")])
        with pytest.raises(InvalidStorageRequest):
            await backend.create(good, bytes(VALUE_SIZE_MAX + 1))
        assert await backend.get(good) is None


def test_the_simple_backend_has_no_order(under_test: BackendUnderTest) -> None:
    """R7: the contract is tested on one that has the required methods only."""
    backend = asyncio.run(_open(under_test))
    assert isinstance(backend, OrderedBackend) == (type(backend).__name__ != "Simple")


async def _open(under_test: BackendUnderTest) -> MetadataStorageBackend:
    async with opened(under_test) as backend:
        return backend

"""The table of one partition of the metadata topic, and its bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quipu.broker.metadata_topic.codec import (
    Call,
    MetadataRequest,
    NotMetadataLeader,
    decode_command,
    decode_request,
    decode_response,
    encode_command,
    encode_entries,
    encode_error,
    encode_request,
)
from quipu.model.errors import MalformedBytes
from quipu.remote.metadata.errors import (
    BackendUnavailable,
    ExpectationFailed,
    InvalidStorageRequest,
    KeyExists,
    KeyNotFound,
    MetadataStorageError,
    OutcomeUnknown,
)
from quipu.remote.metadata.storage.backend import (
    CreateKey,
    ExpectValue,
    KeyValue,
    Operation,
    RemoveKey,
    UpdateKey,
)
from quipu.remote.metadata.storage.entry_table import PAGE_SIZE_MAX, EntryTable

KEYS = st.sampled_from([f"t/1/{name}" for name in ("a", "a/b", "a/c", "ab", "b", "b/1", "b/2")])
VALUES = st.binary(max_size=3)
OPERATIONS: st.SearchStrategy[list[Operation]] = st.lists(st.one_of(
    st.builds(CreateKey, KEYS, VALUES), st.builds(UpdateKey, KEYS, VALUES),
    st.builds(RemoveKey, KEYS), st.builds(ExpectValue, KEYS, VALUES)), max_size=4)


def attempt(table: EntryTable, operations: list[Operation]) -> str:
    try:
        table.apply(operations)
    except MetadataStorageError as error:
        return type(error).__name__
    return "done"


def contents(table: EntryTable) -> list[KeyValue]:
    return table.page("t/1", None, 500)


@given(st.lists(OPERATIONS, max_size=20))
def test_a_replay_gives_the_same_table(steps: list[list[Operation]]) -> None:
    """R7: remote.T1: from commands, and from a snapshot of any moment."""
    table, replayed = EntryTable(), EntryTable()
    for operations in steps:
        before = contents(table)
        result = attempt(table, operations)
        assert result == "done" or contents(table) == before
        assert attempt(replayed, decode_command(encode_command(operations))) == result
    restored = EntryTable()
    for operations in table.snapshot():
        restored.apply(decode_command(encode_command(operations)))
    assert contents(table) == contents(replayed) == contents(restored)
    table.invariants()


def test_keys_are_found_in_order() -> None:
    """R3: by their floor, and in pages; a key that only begins alike is not below another."""
    table = EntryTable()
    table.apply([CreateKey(f"t/1/a/{number:03d}", b"%d" % number) for number in range(0, 100, 10)])
    table.apply([CreateKey("t/1/ab", b"x"), CreateKey("t/1/a", b"y")])
    assert table.floor("t/1/a", "t/1/a/045") == [KeyValue("t/1/a/040", b"40")]
    assert table.floor("t/1/a", "t/1/a/999") == [KeyValue("t/1/a/090", b"90")]
    assert table.floor("t/1/a", "t/1/a/!") == []
    assert [key for key, _ in table.page("t/1/a", "t/1/a/070", 10)] == ["t/1/a/080", "t/1/a/090"]
    assert [key for key, _ in table.page("t/1/a", None, 2)] == ["t/1/a/000", "t/1/a/010"]


def test_a_page_is_bounded_by_its_bytes() -> None:
    """K8: large values come on pages of their own; every page has one at least."""
    table = EntryTable()
    large = bytes(PAGE_SIZE_MAX // 4)
    table.apply([CreateKey(f"t/1/{number}", large) for number in range(10)])
    found: list[KeyValue] = []
    while page := table.page("t/1", found[-1].key if found else None, 500):
        assert sum(len(value) for _, value in page) <= PAGE_SIZE_MAX
        found += page
    assert len(found) == 10
    assert all(len(encode_command(some)) < PAGE_SIZE_MAX for some in table.snapshot())


REQUESTS = [
    MetadataRequest(Call.EXECUTE, [CreateKey("t/1/a", b"1"), UpdateKey("t/1/b", b""),
                                   RemoveKey("t/1/c"), ExpectValue("t/1/d", b"2")]),
    MetadataRequest(Call.GET_MANY, keys=["t/1/a", "t/1/b"]),
    MetadataRequest(Call.FLOOR, keys=["t/1/a", "t/1/a/5"]),
    MetadataRequest(Call.PAGE, keys=["t/1/a", ""], limit=500),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: each.call.name)
def test_requests_come_back_as_they_were(request_: MetadataRequest) -> None:
    """K8: and no part of one is taken for a whole one."""
    data = encode_request(request_)
    found = decode_request(data)
    assert (found.call, list(found.operations), list(found.keys), found.limit) == (
        request_.call, list(request_.operations), list(request_.keys), request_.limit)
    for cut in range(len(data)):
        with pytest.raises(MalformedBytes):
            decode_request(data[:cut])
    with pytest.raises(MalformedBytes):
        decode_request(data + b"\0")


@pytest.mark.parametrize("error", [
    KeyExists("a"), KeyNotFound("b"), ExpectationFailed("c"), OutcomeUnknown("d"),
    NotMetadataLeader("e"), BackendUnavailable("f"), InvalidStorageRequest("g")],
    ids=lambda each: type(each).__name__)
def test_errors_come_back_as_they_were(error: MetadataStorageError) -> None:
    """R11: a deposed leader's write is refused with its own error, on any node."""
    with pytest.raises(type(error), match=str(error)) as caught:
        decode_response(encode_error(error))
    assert type(caught.value) is type(error)


def test_entries_come_back_as_they_were() -> None:
    """R7: keys and values, also empty ones."""
    entries = [KeyValue("t/1/a", b""), KeyValue("t/1/b", b"x" * 1000)]
    assert decode_response(encode_entries(entries)) == entries


@given(st.binary(max_size=200))
def test_hostile_bytes_are_refused(data: bytes) -> None:
    """K8: whatever comes is decoded in whole, or refused."""
    for decode in (decode_command, decode_request, decode_response):
        try:
            decode(data)
        except (MalformedBytes, MetadataStorageError):
            continue


def test_an_atomic_step_is_bounded() -> None:
    """K8: before anything is written."""
    with pytest.raises(InvalidStorageRequest, match="in one step"):
        encode_command([CreateKey(f"t/1/{number}", bytes(1 << 20)) for number in range(5)])

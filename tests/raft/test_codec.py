"""Messages as bytes: what is sent arrives, and malformed bytes are rejected."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quipu.model.batch_types import CONFIGURATION, CONTROLLER, DATA
from quipu.model.errors import MalformedBytes
from quipu.model.ids import RaftIndex, Term
from quipu.raft.codec import decode, encode
from quipu.raft.membership import Configuration
from quipu.raft.messages import (
    AppendEntries,
    AppendEntriesResponse,
    InstallSnapshot,
    InstallSnapshotResponse,
    Observe,
    RaftEntry,
    RaftHeartbeat,
    RaftHeartbeatResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from quipu.raft.snapshot import join_items, split_items

NUMBERS = st.integers(0, (1 << 62) - 1)
SMALL = st.integers(0, 1000)
VOTERS = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=9, unique=True).map(
    Configuration.of)
COMMANDS = st.one_of(
    st.tuples(st.just(CONTROLLER), st.lists(st.binary(max_size=30), min_size=1, max_size=4)),
    st.tuples(st.just(CONFIGURATION), VOTERS.map(lambda found: [found.encode()])))


@st.composite
def appends(draw: st.DrawFn) -> AppendEntries:
    prev_index, prev_term = draw(SMALL), draw(SMALL)
    terms = sorted(draw(st.lists(st.integers(prev_term, 2000), max_size=5)))
    entries = []
    for position, entry_term in enumerate(terms):
        kind, commands = draw(COMMANDS)
        entries.append(RaftEntry(RaftIndex(prev_index + 1 + position), Term(entry_term), kind,
                             tuple(commands)))
    return AppendEntries(Term(2000), RaftIndex(prev_index), Term(prev_term), draw(SMALL),
                         draw(SMALL),
                  tuple(entries))


MESSAGES = st.one_of(
    appends(),
    st.builds(VoteRequest, NUMBERS, NUMBERS, NUMBERS, st.booleans(), st.booleans()),
    st.builds(VoteResponse, NUMBERS, st.booleans(), st.booleans(), NUMBERS),
    st.builds(AppendEntriesResponse, NUMBERS, st.booleans(), NUMBERS, NUMBERS, NUMBERS,
              st.booleans()),
    st.builds(RaftHeartbeat, NUMBERS, NUMBERS, NUMBERS),
    st.builds(RaftHeartbeatResponse, NUMBERS, NUMBERS),
    st.builds(InstallSnapshot, st.just(2000), st.integers(1, 99), SMALL, VOTERS, SMALL, NUMBERS,
              NUMBERS,
              st.binary(max_size=50)),
    st.builds(InstallSnapshotResponse, NUMBERS, NUMBERS, NUMBERS),
    st.builds(TimeoutNow, NUMBERS),
    st.builds(Observe, NUMBERS))


@given(message=MESSAGES)
def test_what_is_sent_arrives(message: object) -> None:
    """T6: every kind of message, entries by value."""
    assert decode(memoryview(encode(message))) == message  # type: ignore[arg-type]  # any of them


@given(message=MESSAGES, data=st.data())
def test_bytes_that_are_cut_or_changed_are_refused_or_are_a_message(
    message: object, data: st.DataObject
) -> None:
    """K8: any bytes are a message, or are rejected with one kind of error."""
    body = bytearray(encode(message))  # type: ignore[arg-type]  # any of them
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    for size in {len(body), data.draw(st.integers(0, len(body)))}:
        with contextlib.suppress(MalformedBytes):
            decode(memoryview(bytes(body[:size])))


@given(body=st.binary(max_size=200))
def test_any_bytes(body: bytes) -> None:
    with contextlib.suppress(MalformedBytes):
        decode(memoryview(body))


CASES = [
    ("nothing", b""),
    ("an unknown kind", b"\x63" + bytes(50)),
    ("a negative term", encode(Observe(Term(1))).replace(b"\x00" * 7, b"\xff" * 7)),
    ("bytes too many", encode(Observe(Term(1))) + b"x"),
    ("entries that are not there",
     encode(AppendEntries(Term(1), 0, 0, 0, 0, ()))[:-4] + b"\0\0\0\x09"),
    ("more entries than allowed",
     encode(AppendEntries(Term(1), 0, 0, 0, 0, ()))[:-4] + b"\xff" * 4),
    ("a type that is no entry's",
     encode(AppendEntries(Term(1), 0, 0, 0, 0, (RaftEntry(1, 1, DATA, (b"x",)),)))),
    ("an entry of a later term",
     encode(AppendEntries(Term(1), 0, 0, 0, 0, (RaftEntry(1, 2, CONTROLLER, (b"x",)),)))),
    ("terms that fall",
     encode(AppendEntries(Term(5), 0, 4, 0, 0, (RaftEntry(1, 3, CONTROLLER, (b"x",)),)))),
    ("an entry without commands",
     encode(AppendEntries(Term(1), 0, 0, 0, 0, (RaftEntry(1, 1, CONTROLLER, ()),)))),
    ("a configuration that is none",
     encode(AppendEntries(Term(1), 0, 0, 0, 0, (RaftEntry(1, 1, CONFIGURATION, (b"x",)),)))),
    ("a snapshot of nothing",
     encode(InstallSnapshot(Term(1), 0, 0, Configuration.of([1]), 0, 0, 0, b""))),
]


@pytest.mark.parametrize("body", [case[1] for case in CASES], ids=[case[0] for case in CASES])
def test_malformed_messages_are_rejected(body: bytes) -> None:
    """K8, T6: entries of one known type each, in order."""
    with pytest.raises(MalformedBytes):
        decode(memoryview(body))


@given(items=st.lists(st.binary(max_size=20), max_size=8))
def test_items_of_a_snapshot_are_kept_apart(items: list[bytes]) -> None:
    assert split_items(join_items(items)) == tuple(items)


def test_a_torn_snapshot_is_refused() -> None:
    whole = join_items([b"abc", b"de"])
    for size in (1, 5, len(whole) - 1):
        with pytest.raises(MalformedBytes):
            split_items(whole[:size])

"""Messages as bytes, and back.  All big endian.

    kind u8 | term i64 | fields by kind | entries or data, to the end

An entry is its term i64, its type u8, the number of its commands u32, and each command with its
size u32 before it; its index follows from where it lies.  One entry has one type (T6).

The bytes that are decoded come from another node: each number is checked before it is used, each
length before bytes are taken; `MalformedBytes` says what is wrong.  So a decoded message's entries
follow `prev_index`, their terms do not fall and do not exceed the message's, and configurations
among them can be decoded.
"""

import struct
from collections.abc import Callable
from struct import Struct
from typing import Final

from quipu.model.batch_types import CONFIGURATION, BatchType
from quipu.model.bounds import INDEX_MAX, TERM_MAX
from quipu.model.errors import MalformedBytes
from quipu.model.ids import RaftIndex, Term
from quipu.raft.membership import Configuration
from quipu.raft.messages import (
    ENTRY_TYPES,
    AppendEntries,
    AppendEntriesResponse,
    InstallSnapshot,
    InstallSnapshotResponse,
    Message,
    Observe,
    RaftEntry,
    RaftHeartbeat,
    RaftHeartbeatResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from quipu.raft.settings import (
    CHUNK_SIZE_MAX,
    COMMANDS_MAX,
    ENTRIES_MAX,
    ENTRY_SIZE_MAX,
)

NUMBER_MAX: Final = max(TERM_MAX, INDEX_MAX)  # of any number in a message

_ENTRY: Final = Struct(">qBI")
_SIZE: Final = Struct(">I")

# The fields of fixed size, by kind of message; the position in the table is the kind's number.
_FIXED: Final[tuple[tuple[type[Message], Struct], ...]] = (
    (VoteRequest, Struct(">qqq??")),
    (VoteResponse, Struct(">q??q")),
    (AppendEntries, Struct(">qqqqqI")),
    (AppendEntriesResponse, Struct(">q?qqq?")),
    (RaftHeartbeat, Struct(">qqq")),
    (RaftHeartbeatResponse, Struct(">qq")),
    (InstallSnapshot, Struct(">qqqqQQH")),
    (InstallSnapshotResponse, Struct(">qqQ")),
    (TimeoutNow, Struct(">q")),
    (Observe, Struct(">q")),
)
_KIND_OF: Final = {kind: number for number, (kind, _) in enumerate(_FIXED)}


def encode(message: Message) -> bytes:
    """Return `message` as bytes."""
    number = _KIND_OF[type(message)]
    fixed = _FIXED[number][1]
    match message:
        case AppendEntries():
            parts = [bytes([number]), fixed.pack(*message[:5], len(message.entries))]
            for entry in message.entries:
                write_entry(parts, entry)
            return b"".join(parts)
        case InstallSnapshot():
            voters = message.configuration.encode()
            return b"".join((
                bytes([number]),
                fixed.pack(message.term, message.index, message.index_term, message.last_index,
                           message.size, message.position, len(voters)),
                voters, message.data))
        case _:
            return bytes([number]) + fixed.pack(*message)


def decode(data: memoryview) -> Message:
    """Return the message in `data`, without references to `data`.  Raises `MalformedBytes`."""
    try:
        return _decode(data)
    except (struct.error, IndexError) as error:
        raise MalformedBytes(f"message of {len(data)} bytes is too short") from error


def _decode(data: memoryview) -> Message:
    number = data[0]
    if number >= len(_FIXED):
        raise MalformedBytes(f"message of unknown kind {number}")
    kind, fixed = _FIXED[number]
    values = fixed.unpack_from(data, 1)
    rest = data[1 + fixed.size :]
    if min(values) < 0 or max(values) > NUMBER_MAX:
        raise MalformedBytes(f"{kind.__name__} with a number out of bounds: {values}")
    if kind is AppendEntries:
        return _decode_append(values, rest)
    if kind is InstallSnapshot:
        return _decode_install(values, rest)
    if rest:
        raise MalformedBytes(f"{kind.__name__} with {len(rest)} bytes too many")
    make: Callable[..., Message] = kind
    return make(*values)


def _decode_append(values: tuple[int, ...], rest: memoryview) -> AppendEntries:
    term, prev_index, prev_term, commit_index, last_index, count = values
    if count > ENTRIES_MAX or prev_term > term:
        raise MalformedBytes(f"{count} entries after one of term {prev_term}, in term {term}")
    entries: list[RaftEntry] = []
    position, previous = 0, prev_term
    for index in range(prev_index + 1, prev_index + 1 + count):
        entry, position = read_entry(rest, position, RaftIndex(index))
        if not previous <= entry.term <= term:
            raise MalformedBytes(f"entry of term {entry.term} after one of {previous}, in {term}")
        previous = entry.term
        entries.append(entry)
    if position != len(rest):
        raise MalformedBytes(f"{len(rest) - position} bytes follow the last entry")
    return AppendEntries(Term(term), RaftIndex(prev_index), Term(prev_term),
                         RaftIndex(commit_index), RaftIndex(last_index), tuple(entries))


def _decode_install(values: tuple[int, ...], rest: memoryview) -> InstallSnapshot:
    term, index, index_term, last_index, size, position, voters_size = values
    if voters_size > len(rest) or len(rest) - voters_size > CHUNK_SIZE_MAX:
        raise MalformedBytes(f"chunk of a snapshot with {len(rest)} bytes, {voters_size} of voters")
    if index == 0 or index_term > term:
        raise MalformedBytes(f"snapshot of entry {index} of term {index_term}, in term {term}")
    return InstallSnapshot(
        Term(term), RaftIndex(index), Term(index_term), Configuration.decode(rest[:voters_size]),
        RaftIndex(last_index), size, position, bytes(rest[voters_size:]))


def write_entry(parts: list[bytes], entry: RaftEntry) -> None:
    """Add the bytes of `entry` to `parts`."""
    parts.append(_ENTRY.pack(entry.term, entry.batch_type, len(entry.commands)))
    for command in entry.commands:
        parts += (_SIZE.pack(len(command)), command)


def read_entry(data: memoryview, position: int, index: RaftIndex) -> tuple[RaftEntry, int]:
    """Return the entry at `position`, which has this `index`, and the position after it."""
    term, kind, count = _ENTRY.unpack_from(data, position)
    start = position = position + _ENTRY.size
    if not 0 <= term <= NUMBER_MAX or kind not in ENTRY_TYPES:
        raise MalformedBytes(f"entry of term {term} and type {kind}")
    if not 1 <= count <= COMMANDS_MAX or count * _SIZE.size > len(data) - position:
        raise MalformedBytes(f"{count} commands do not fit in {len(data) - position} bytes")
    commands = []
    for _ in range(count):
        (size,) = _SIZE.unpack_from(data, position)
        position += _SIZE.size
        if size > len(data) - position:
            raise MalformedBytes(f"command of {size} bytes, {len(data) - position} are left")
        commands.append(bytes(data[position : position + size]))
        position += size
    if position - start > ENTRY_SIZE_MAX + count * _SIZE.size:
        raise MalformedBytes(f"entry of {position - start} bytes")
    if kind == CONFIGURATION:
        if count != 1:
            raise MalformedBytes(f"configuration of {count} commands")
        Configuration.decode(commands[0])
    return RaftEntry(index, Term(term), BatchType(kind), tuple(commands)), position

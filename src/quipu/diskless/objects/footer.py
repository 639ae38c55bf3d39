"""The footer of an object: which batches it has, and receipts for earlier objects.

      0 format u16 = 1 | 2 zero u16 | 4 node id i32 | 8 writer 16 | 24 sequence i64 |
     32 time of writing i64 | 40 logs u32 | 44 batches u32 | 48 receipts u32 |
     52 numbers in receipts u32 | 56 notes u32
     60 per log, 24 bytes: topic id 16 | partition i32 | its batches u32
        per batch, 42 bytes: size u32 | record count u32 | base offset i64, -1 if the batch had none
            yet | largest timestamp i64 | producer id i64 | producer epoch i16 | base sequence i32 |
            CRC-32C in the batch's header u32
        per receipt, 32 bytes: node id i32 | writer 16 | sequence i64 | its numbers u32
        numbers of the receipts, i64 each
        per note, 36 bytes: topic id 16 | partition i32 | log start i64 | high watermark i64
The trailer, 32 bytes, is the end of the object:
      0 footer position i64 | 8 footer size u32 | 12 CRC-32C of the footer u32 |
     16 format u16 = 1 | 18 zero u16 | 20 CRC-32C of bytes 0 to 19 u32 | 24 magic "QUIPUOBJ"
The header, 16 bytes, is its beginning: magic "QUIPUOBJ" | format u16 = 1 | zero u16 | zero u32
All big endian.  docs/internals/diskless-object.md has the whole format.

Invariants
    diskless.objects.O3  decoding uses all bytes, or raises `CorruptObject`; the memory that it
                         takes is at most a constant times the size of the footer
    diskless.objects.O4  the batches fill the object from the header to the footer without gaps;
                         each log has its batches together, in the order in which they arrived

A batch's position follows from the sizes of those before it.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from crc32c import crc32c

from quipu.diskless.errors import CorruptObject
from quipu.diskless.objects.names import ObjectName
from quipu.diskless.objects.receipts import LogNote, Receipt
from quipu.diskless.values import BatchCoordinates, LogKey
from quipu.model.bounds import OFFSET_MAX
from quipu.model.errors import UnknownFormat
from quipu.model.ids import NO_TIMESTAMP, NodeId, Offset, ProducerId, TimestampMs
from quipu.runtime.objects.store import Buffer
from quipu.wire.record_batch import HEADER_SIZE as BATCH_HEADER_SIZE

FORMAT: Final = 1
MAGIC: Final = b"QUIPUOBJ"
OBJECT_SIZE_MAX: Final = 1 << 40
FOOTER_SIZE_MAX: Final = 64 << 20
NO_OFFSET: Final = Offset(-1)
_HEADER: Final = Struct(">8sHHI")
_TRAILER: Final = Struct(">qIIHHI8s")
_HEAD: Final = Struct(">HHi16sqqIIIII")
_LOG: Final = Struct(">16siI")
_BATCH: Final = Struct(">IIqqqhiI")
_RECEIPT: Final = Struct(">i16sqI")
_NUMBER: Final = Struct(">q")
_NOTE: Final = Struct(">16siqq")
HEADER_SIZE: Final = _HEADER.size
TRAILER_SIZE: Final = _TRAILER.size
HEADER: Final = _HEADER.pack(MAGIC, FORMAT, 0, 0)
_TRAILER_COVERED: Final = 20
_SIZES: Final = (_LOG.size, _BATCH.size, _RECEIPT.size, _NUMBER.size, _NOTE.size)

assert (HEADER_SIZE, TRAILER_SIZE, _HEAD.size) == (16, 32, 60)
assert _SIZES == (24, 42, 32, 8, 36)


def index_size(log_count: int, batch_count: int) -> int:
    """Bytes of an object beyond its batches, if it has no receipts and notes."""
    return (HEADER_SIZE + _HEAD.size + log_count * _LOG.size + batch_count * _BATCH.size
            + TRAILER_SIZE)


def receipts_size(receipt_count: int, number_count: int, note_count: int) -> int:
    """Bytes of receipts and notes in a footer."""
    return receipt_count * _RECEIPT.size + number_count * _NUMBER.size + note_count * _NOTE.size


class FooterBatch(NamedTuple):
    """A batch as the footer describes it."""

    coordinates: BatchCoordinates
    base_offset: Offset  # NO_OFFSET: it had none when the object was written
    crc: int  # of the batch, as its header has it


class ObjectFooter(NamedTuple):
    """What an object says of itself."""

    name: ObjectName
    created_ms: TimestampMs  # by the clock of its writer
    batches: tuple[FooterBatch, ...] = ()
    receipts: tuple[Receipt, ...] = ()
    notes: tuple[LogNote, ...] = ()

    @property
    def end(self) -> int:
        """The position after the last batch: where the footer begins."""
        if not self.batches:
            return HEADER_SIZE
        last = self.batches[-1].coordinates
        return last.position + last.size


class FooterPointer(NamedTuple):
    """Where the footer of an object is, and its checksum."""

    position: int
    size: int
    crc: int

    @property
    def object_size(self) -> int:
        """Bytes of the whole object."""
        return self.position + self.size + TRAILER_SIZE


# --- writing ----------------------------------------------------------------------------------


def encode_footer(footer: ObjectFooter) -> bytes:
    """The footer's bytes; what decoding would refuse is a bug of the caller."""
    logs: list[tuple[LogKey, int]] = []
    entries: list[bytes] = []
    pack = _BATCH.pack
    for (log, _, size, count, newest, producer_id, epoch, sequence), offset, crc in footer.batches:
        if not logs or logs[-1][0] != log:
            logs.append((log, 0))
        logs[-1] = (log, logs[-1][1] + 1)
        entries.append(pack(size, count, offset, newest, producer_id, epoch, sequence, crc))
    return join_footer(footer, logs, entries)


def join_footer(
    footer: ObjectFooter, logs: Sequence[tuple[LogKey, int]], entries: Sequence[bytes]
) -> bytes:
    """The footer's bytes, with the logs and entries of its batches, in order."""
    receipts, notes, name = footer.receipts, footer.notes, footer.name
    number_count = sum(len(receipt.offsets) for receipt in receipts)
    data = b"".join((
        _HEAD.pack(FORMAT, 0, name.node_id, name.writer.bytes, name.sequence, footer.created_ms,
                   len(logs), len(entries), len(receipts), number_count, len(notes)),
        *(_LOG.pack(log.topic_id.bytes, log.partition, count) for log, count in logs),
        *entries,
        *(_RECEIPT.pack(each.name.node_id, each.name.writer.bytes, each.name.sequence,
                        len(each.offsets)) for each in receipts),
        *(Struct(f">{len(each.offsets)}q").pack(*each.offsets) for each in receipts),
        *(_NOTE.pack(note.log.topic_id.bytes, note.log.partition, note.log_start_offset,
                     max(note.log_start_offset, note.high_watermark)) for note in notes)))
    assert len(data) <= FOOTER_SIZE_MAX, len(data)
    return data


encode_entry = _BATCH.pack  # of a batch: its fields in order


def encode_trailer(pointer: FooterPointer) -> bytes:
    """The end of the object."""
    head = _TRAILER.pack(*pointer, FORMAT, 0, 0, MAGIC)[:_TRAILER_COVERED]
    return head + crc32c(head).to_bytes(4, "big") + MAGIC


def close_object(footer: bytes, position: int) -> tuple[bytes, bytes]:
    """The footer that begins at `position`, and the trailer."""
    return footer, encode_trailer(FooterPointer(position, len(footer), crc32c(footer)))


# --- reading ----------------------------------------------------------------------------------


def is_object(data: Buffer) -> bool:
    """Whether these first bytes of a file are those of an object, of any format."""
    return bytes(data[: len(MAGIC)]) == MAGIC


def check_header(data: Buffer) -> None:
    """Raise unless these are the first bytes of an object."""
    if len(data) < HEADER_SIZE or not is_object(data):
        raise CorruptObject(f"an object that does not begin with {MAGIC.decode()}")
    _, version, zero, zeros = _HEADER.unpack_from(data)
    _check_format(version)
    if zero or zeros:
        raise CorruptObject("the header of an object with bytes that should be 0")


def decode_trailer(data: Buffer) -> FooterPointer:
    """Where an object's last bytes say that its footer is; raises `CorruptObject`."""
    if len(data) != TRAILER_SIZE:
        raise CorruptObject(f"the trailer of an object has {TRAILER_SIZE} bytes, not {len(data)}")
    position, size, footer_crc, version, zero, crc, magic = _TRAILER.unpack(data)
    if magic != MAGIC:
        raise CorruptObject(f"an object that does not end with {MAGIC.decode()}")
    if crc32c(bytes(data[:_TRAILER_COVERED])) != crc or zero != 0:
        raise CorruptObject("the trailer of an object has a bad checksum")
    _check_format(version)
    if not (HEADER_SIZE <= position <= OBJECT_SIZE_MAX and _HEAD.size <= size <= FOOTER_SIZE_MAX):
        raise CorruptObject(f"the footer of an object: {size} bytes at {position}")
    return FooterPointer(position, size, footer_crc)


def check_footer_crc(data: Buffer, pointer: FooterPointer) -> None:
    """Raise unless these are the bytes that the trailer points at."""
    if len(data) != pointer.size or crc32c(data) != pointer.crc:
        raise CorruptObject("the footer of an object has a bad checksum")


def decode_footer(data: Buffer, *, position: int) -> ObjectFooter:
    """The footer at `position` of its object; raises `CorruptObject` (diskless.objects.O3)."""
    data = bytes(data)
    if not _HEAD.size <= len(data) <= FOOTER_SIZE_MAX:
        raise CorruptObject(f"the footer of an object has {len(data)} bytes")
    version, zero, node_id, writer, sequence, created_ms, *counts = _HEAD.unpack_from(data)
    _check_format(version)
    sizes = [count * size for count, size in zip(counts, _SIZES, strict=True)]
    if _HEAD.size + sum(sizes) != len(data):
        raise CorruptObject(
            f"the footer of an object has {len(data)} bytes, its parts {sum(sizes)}")
    if zero != 0 or created_ms < NO_TIMESTAMP:
        raise CorruptObject("the footer of an object with numbers out of bounds")
    parts, at = [], _HEAD.size
    for size in sizes:
        parts.append(data[at : at + size])
        at += size
    logs, batches, receipts, numbers, notes = parts
    footer = ObjectFooter(
        _name(node_id, writer, sequence), TimestampMs(created_ms),
        tuple(_batches(logs, batches)), tuple(_receipts(receipts, numbers)), tuple(_notes(notes)))
    if footer.end != position:
        raise CorruptObject(f"the batches of an object end at {footer.end}, its footer begins at "
                            f"{position}")
    return footer


def _check_format(version: int) -> None:
    if version != FORMAT:
        raise UnknownFormat(f"an object of format {version}, this version reads {FORMAT}: "
                            "update this node")


def _name(node_id: int, writer: bytes, sequence: int) -> ObjectName:
    if node_id < 0 or sequence < 0:
        raise CorruptObject(f"the footer of an object names object {sequence} of node {node_id}")
    return ObjectName(NodeId(node_id), UUID(bytes=writer), sequence)


def _log_key(topic_id: bytes, partition: int) -> LogKey:
    if partition < 0:
        raise CorruptObject(f"the footer of an object names partition {partition}")
    return LogKey(UUID(bytes=topic_id), partition)


def _batches(logs: bytes, batches: bytes) -> Iterator[FooterBatch]:
    """The batches, with the positions that follow from their sizes (diskless.objects.O4)."""
    entries = _BATCH.iter_unpack(batches)
    position, seen = HEADER_SIZE, set()
    for topic_id, partition, count in _LOG.iter_unpack(logs):
        log = _log_key(topic_id, partition)
        if count == 0 or log in seen:
            raise CorruptObject(f"the footer of an object has {log} twice, or without batches")
        seen.add(log)
        found = 0
        for fields in islice(entries, count):
            size, records, offset, newest, producer_id, epoch, sequence, crc = fields
            if (size < BATCH_HEADER_SIZE or not 1 <= records < 1 << 31
                    or not NO_OFFSET <= offset <= OFFSET_MAX):  # the rest is up to the client
                raise CorruptObject(f"the footer of an object with a bad batch at {position}")
            coordinates = BatchCoordinates(log, position, size, records, TimestampMs(newest),
                                           ProducerId(producer_id), epoch, sequence)
            yield FooterBatch(coordinates, Offset(offset), crc)
            position += size
            found += 1
        if found != count:
            raise CorruptObject("the footer of an object has fewer batches than its logs")
    if next(entries, None) is not None:
        raise CorruptObject("the footer of an object has more batches than its logs")


def _receipts(receipts: bytes, numbers: bytes) -> Iterator[Receipt]:
    at = 0
    for node_id, writer, sequence, count in _RECEIPT.iter_unpack(receipts):
        end = at + count * _NUMBER.size
        if end > len(numbers):
            raise CorruptObject("the footer of an object has fewer numbers than its receipts")
        found = Struct(f">{count}q").unpack_from(numbers, at)
        if found and (max(found) > OFFSET_MAX or min(found) < -2 - OFFSET_MAX):
            raise CorruptObject("the footer of an object has a receipt with a bad offset")
        yield Receipt(_name(node_id, writer, sequence), found)
        at = end
    if at != len(numbers):
        raise CorruptObject("the footer of an object has more numbers than its receipts")


def _notes(data: bytes) -> Iterator[LogNote]:
    for topic_id, partition, log_start, high_watermark in _NOTE.iter_unpack(data):
        if not 0 <= log_start <= high_watermark <= OFFSET_MAX:
            raise CorruptObject(f"the footer of an object notes bounds {log_start} to "
                                f"{high_watermark}")
        yield LogNote(_log_key(topic_id, partition), Offset(log_start), Offset(high_watermark))

"""Fuzz targets: one function per parser of foreign bytes.

A target takes any bytes.  It may end in the typed errors that the parser promises; anything else
that it raises is a bug.  What a parser accepts must also keep the promises stated here: encoding
what was decoded gives something that decodes to the same.

Run by tests/fuzz/run.py under atheris, and by tests/fuzz/test_targets.py with a small budget.
"""

import struct
from collections.abc import Callable
from contextlib import suppress
from uuid import UUID

import pyarrow as pa

from quipu.diskless.errors import CorruptObject
from quipu.diskless.objects import footer as objects
from quipu.diskless.objects.encoding import PendingBatch, encode_object
from quipu.diskless.objects.names import ObjectName
from quipu.diskless.objects.reading import check_batch as check_object_batch
from quipu.diskless.objects.reading import footer_of
from quipu.diskless.objects.receipts import LogNote, Receipt
from quipu.diskless.values import LogKey
from quipu.model.errors import MalformedBytes, QuipuError, RequestError, UnknownFormat
from quipu.model.ids import NodeId, Offset
from quipu.model.settings_types import Address
from quipu.pipeline.formats.json import _scan_pure as plain_json
from quipu.pipeline.formats.json import scan as json_scan
from quipu.pipeline.records import _columns_pure, columns
from quipu.pipeline.records.batches import OffsetSpan, WantedColumns
from quipu.pipeline.records.transactions import Transactions
from quipu.remote.metadata.segment_metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
)
from quipu.remote.metadata.serde import (
    EpochHeader,
    KafkaSerde,
    PartitionHeader,
    UnreferencedSegment,
)
from quipu.remote.segments.errors import UnknownSegmentFormat
from quipu.remote.segments.footer import (
    ChunkEntry,
    SegmentEpoch,
    SegmentFooter,
    decode_footer,
    encode_footer,
)
from quipu.remote.segments.names import SegmentName
from quipu.remote.segments.pointer import SegmentPointer, decode_pointer, decode_trailer
from quipu.runtime.peers.hello import Hello, PeerRefused, decode_hello
from quipu.runtime.peers.peer_net import Identity
from quipu.storage.segments.scan import Scan
from quipu.wire import _fast_pure, _records_pure, fast
from quipu.wire.frame import decode_request, encode_request
from quipu.wire.messages import REQUESTS
from quipu.wire.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from quipu.wire.record_batch import (
    HEADER_SIZE,
    LENGTH_START,
    MAGIC,
    Record,
    body_crc,
    check_batch,
    decode_records,
    encode_batch,
    parse_header,
)
from quipu.wire.record_check import check_records
from quipu.wire.records import (
    are_plain,
    find_time,
    lz4_size_max,
    snappy_size_max,
    walk_records,
    zstd_size_max,
)
from quipu.wire.stored_batch import (
    Fault,
    check_header,
    check_stored,
    pack_prefix,
    walk_headers,
)

BATCH_SIZE_MAX = 1 << 20
RECORDS_SIZE_MAX = 1 << 20
PRODUCE_VERSIONS = list(ProduceRequest.VERSIONS)
MAGIC_POSITION, CRC_POSITION = 16, 17
FOOTER_POSITION = 350
SEGMENT_FOOTER = SegmentFooter(
    SegmentName(UUID(int=1), 2, 100, UUID(int=3)), "topic", 120, 200, 230, 99, 500,
    (ChunkEntry(0, 50, 200, 100, 200, 1, 0), ChunkEntry(50, 300, 300, 110, 215, 2, 200)),
    bytes(20), (SegmentEpoch(0, 100, 200),), b"producers", b"")


_OBJECT = ObjectName(NodeId(1), UUID(int=4), 9)
_LOG = LogKey(UUID(int=1), 0)
_DISKLESS_BATCH = bytes(encode_batch([Record(b"key", b"value", (), 1000)], producer_id=3,
                                     producer_epoch=0, base_sequence=7))
_RECEIPT = Receipt(_OBJECT._replace(sequence=8), (5, -1, -9))
DISKLESS = encode_object(
    _OBJECT, [PendingBatch(_LOG, _DISKLESS_BATCH, parse_header(memoryview(_DISKLESS_BATCH)))],
    created_ms=1000, receipts=[_RECEIPT], notes=[LogNote(_LOG, Offset(1), Offset(6))])
RECEIPTS_ALONE = encode_object(_OBJECT, [], created_ms=1000, receipts=[_RECEIPT])
OBJECT_HEADER_SIZE = objects.HEADER_SIZE
DISKLESS_POSITION = OBJECT_HEADER_SIZE + len(_DISKLESS_BATCH)


class MemoryFile:
    """Bytes, as the file that a scan reads."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read(self, size: int, position: int) -> bytes:
        return self._data[position : position + size]


def request(data: bytes) -> None:
    """A frame without its length; the header chooses the API."""
    try:
        header, decoded = decode_request(memoryview(data))
    except (MalformedBytes, RequestError):
        return
    again = encode_request(decoded, header.api_version, correlation_id=header.correlation_id,
                           client_id=header.client_id)
    assert decode_request(memoryview(again)[4:]) == (header, decoded)


def request_of_a_kind(data: bytes) -> None:
    """A body; the first two bytes choose API and version, so that none is hard to reach."""
    if len(data) < 2:
        return
    keys = sorted(REQUESTS)
    kind = REQUESTS[keys[data[0] % len(keys)]]
    version = kind.VERSIONS[data[1] % len(kind.VERSIONS)]
    try:
        decoded = kind.decode(data[2:], version)
    except MalformedBytes:
        return
    assert kind.decode(decoded.encode(version), version) == decoded


def produce(data: bytes) -> None:
    """A Produce body behind its version: the compiled and the plain parser agree."""
    if not data:
        return
    version = PRODUCE_VERSIONS[data[0] % len(PRODUCE_VERSIONS)]
    frame = memoryview(data)
    assert _outcome(lambda: fast.parse_produce(frame, 1, version)) == _outcome(
        lambda: _fast_pure.parse_produce(frame, 1, version))


def record_batch(data: bytes) -> None:
    """A batch as a producer sends it, checked, then decoded with its compression; once as it is,
    and once with length, magic and checksum set right, to get past them.
    """
    for candidate in (data, seal_batch(data)):
        view = memoryview(bytearray(candidate))
        plain = _outcome(lambda view=view: check_batch(view, size_max=BATCH_SIZE_MAX))
        assert plain == _outcome(
            lambda view=view: fast.check_batch(view, size_max=BATCH_SIZE_MAX))
        try:
            header = check_batch(view, size_max=BATCH_SIZE_MAX)
            records = list(decode_records(view, size_max=RECORDS_SIZE_MAX))
        except QuipuError:
            continue
        assert len(records) == header.count


def batch_records(data: bytes) -> None:
    """Records behind a byte for the codec and one for the count, in a batch that is sealed: the
    twins agree; and what is found sound decodes to records one offset apart, as counted.
    """
    if len(data) < 2:
        return
    codec, count = data[0] % 6, data[1] + 1  # 5 is no codec
    body = memoryview(data)[2:]
    for module in (lz4_size_max, zstd_size_max, snappy_size_max):
        assert module(body) == getattr(_records_pure, module.__name__)(body)
    for keyed in (False, True):
        assert walk_records(body, 0, count, 1000, keyed=keyed) == _records_pure.walk_records(
            body, 0, count, 1000, keyed=keyed)
    times = {"wanted": 1500, "first_delta": 1}
    assert find_time(body, 0, count, 1000, **times) == _records_pure.find_time(
        body, 0, count, 1000, **times)
    batch = bytearray(HEADER_SIZE) + body
    struct.pack_into(">hiqqqhii", batch, CRC_POSITION + 4, codec, count - 1, 1000, 1000, -1, -1,
                     -1, count)
    view = memoryview(bytearray(seal_batch(bytes(batch))))
    try:
        header = check_batch(view, size_max=BATCH_SIZE_MAX)
        check_records(view, header, keyed=False, size_max=RECORDS_SIZE_MAX)
    except RequestError:
        assert codec > 0 or not are_plain(view, False)
        return
    found = [record.offset for record in decode_records(view, size_max=RECORDS_SIZE_MAX)]
    assert found == list(range(count))


def stored_batch(data: bytes) -> None:
    """Stored bytes: every fault is told apart, none crashes."""
    for candidate in (data, seal_stored(data)):
        view = memoryview(candidate)
        header = check_header(view, 0, end=len(view))
        if isinstance(header, Fault):
            continue
        assert header.batch_type != 0
        assert header.size <= len(view)
        check_stored(view, 0)


def log_walk(data: bytes) -> None:
    """A segment: the walk and the scan agree on where the sound batches end."""
    for candidate in (data, seal_stored(data) * 2):
        walked = list(walk_headers(memoryview(candidate)))
        scan = Scan(MemoryFile(candidate), log_end=0)  # type: ignore[arg-type] reads suffice
        scanned = list(scan)
        assert len(scanned) <= len(walked)
        assert sum(batch.header.size for batch in scanned) == scan.position <= len(candidate)


def record_columns(data: bytes) -> None:
    """Fetched batches to columns: compiled and plain give the same rows, or the same error."""
    run = memoryview(seal_batch(data))
    wanted = WantedColumns(timestamp_type=True, headers=True)
    found = [_outcome(lambda gather=gather: [
        array.to_pylist() for array in gather(
            run, 0, OffsetSpan(0, 1 << 62), wanted, Transactions([])).arrays])
        for gather in (columns.gather, _columns_pure.gather)]
    assert found[0] == found[1]


def json_text(data: bytes) -> None:
    """JSON: compiled and plain find the same faults, and the same members."""
    texts = pa.array([data.decode(errors="replace")])
    one, other = json_scan.members(texts, [b"a"]), plain_json.members(texts, [b"a"])
    assert repr(one) == repr(other)


def peer_hello(data: bytes) -> None:
    """What a node says first: what is read from it says the same when it is said again."""
    try:
        hello = decode_hello(memoryview(data))
    except (MalformedBytes, PeerRefused):
        return
    assert decode_hello(memoryview(hello.encode())) == hello


def seal_batch(data: bytes) -> bytes:
    """The same bytes as one batch whose length, magic and checksum are right."""
    batch = bytearray(data.ljust(HEADER_SIZE, b"\0"))
    batch[:LENGTH_START] = struct.pack(">qi", 0, len(batch) - LENGTH_START)
    batch[MAGIC_POSITION : MAGIC_POSITION + 1] = bytes([MAGIC])
    batch[CRC_POSITION : CRC_POSITION + 4] = struct.pack(">I", body_crc(memoryview(batch)))
    return bytes(batch)


def seal_stored(data: bytes) -> bytes:
    """A stored batch whose checksums are right; its type is the first byte."""
    batch = seal_batch(data[1:])
    return pack_prefix(batch, batch_type=data[0] if data and data[0] else 1, log_offset=0) + batch


def _outcome(call: Callable[[], object]) -> object:
    """What a call gives, or the kind of error that it ends in."""
    try:
        return call()
    except QuipuError as error:
        return type(error), error.code


def segment_object(data: bytes) -> None:
    """A footer, a trailer and a pointer of a remote segment: decoded whole, or refused."""
    for decode, encode in (
            (lambda: decode_footer(data, position=FOOTER_POSITION), encode_footer),
            (lambda: decode_trailer(data), SegmentPointer.encode_trailer),
            (lambda: decode_pointer(data), SegmentPointer.encode)):
        try:
            found = decode()
        except (MalformedBytes, UnknownSegmentFormat):
            continue
        assert encode(found) == data


def diskless_object(data: bytes) -> None:
    """A footer and a trailer of an object of diskless topics, and the whole object: the batches
    that it names are within it, and what is decoded encodes to the same.
    """
    for position in (DISKLESS_POSITION, OBJECT_HEADER_SIZE):
        with suppress(CorruptObject, UnknownFormat):
            footer = objects.decode_footer(data, position=position)
            assert footer.end == position
            assert objects.encode_footer(footer) == data
    with suppress(CorruptObject, UnknownFormat):
        assert objects.encode_trailer(objects.decode_trailer(data)) == data
    for candidate in (data, seal_object(data)):
        view = memoryview(candidate)
        with suppress(CorruptObject, UnknownFormat):
            for batch in footer_of(view).batches:
                place = batch.coordinates
                assert OBJECT_HEADER_SIZE <= place.position < place.position + place.size
                assert place.position + place.size <= len(view)
                with suppress(CorruptObject):
                    check_object_batch(view[place.position : place.position + place.size], batch)


def seal_object(data: bytes) -> bytes:
    """An object whose header and checksums are right, with these bytes as its footer."""
    return b"".join((objects.HEADER, *objects.close_object(data, OBJECT_HEADER_SIZE)))


_PARTITION = TopicIdPartition(UUID(int=1), 0, "topic")
REMOTE_METADATA = (
    RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(_PARTITION, UUID(int=2)), start_offset=0, end_offset=9,
        max_timestamp_ms=1, broker_id=1, event_timestamp_ms=1, segment_size_bytes=5,
        segment_leader_epochs={0: 0, 1: 5}, custom_metadata=b"custom", txn_index_empty=True),
    PartitionHeader(partition=_PARTITION, leader_epoch=1, broker_id=1, incarnation=UUID(int=3)),
    EpochHeader(1, 9), UnreferencedSegment(1, UUID(int=2)))


def remote_metadata(data: bytes) -> None:
    """Stored metadata of remote segments."""
    serde = KafkaSerde()
    try:
        value = serde.deserialize(data)
    except MalformedBytes:
        return
    assert serde.deserialize(serde.serialize(value)) == value


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target
    for target in (
        request, request_of_a_kind, produce, record_batch, batch_records, stored_batch, log_walk,
        record_columns, json_text, peer_hello, remote_metadata, segment_object,
        diskless_object)
}


def seeds(name: str) -> list[bytes]:
    """Sound inputs to start from."""
    batches = [bytes(encode_batch([Record(b"key", b"value" * 20, (("h", b"x"),), 1000)],
                                  compression=compression)) for compression in range(5)]
    stored = [pack_prefix(batch, batch_type=1, log_offset=0) + batch for batch in batches]
    frames = [encode_request(kind(), version, correlation_id=1)[4:]
              for _, kind in sorted(REQUESTS.items()) for version in kind.VERSIONS]
    bodies = [bytes([index, place]) + kind().encode(version)
              for index, (_, kind) in enumerate(sorted(REQUESTS.items()))
              for place, version in enumerate(kind.VERSIONS)]
    part = PartitionProduceData(index=0, records=memoryview(batches[0]))
    topic = TopicProduceData(name="topic", partition_data=[part])
    produced = [bytes([place]) + ProduceRequest(acks=1, topic_data=[topic]).encode(version)
                for place, version in enumerate(PRODUCE_VERSIONS)]
    pointer = SegmentPointer(FOOTER_POSITION, 100, 1)
    return {
        "request": frames, "request_of_a_kind": bodies, "produce": produced,
        "record_batch": batches, "stored_batch": stored,
        "batch_records": [bytes([number, 0]) + batch[HEADER_SIZE:]
                          for number, batch in enumerate(batches)],
        "log_walk": [*stored, stored[0] + stored[1]],
        "record_columns": batches, "json_text": [b'{"b": [1e5], "a": "\\u00e9\\n"}', b"[{}, null]"],
        "peer_hello": [Hello(Identity(NodeId(1), "a-0", UUID(int=1), cluster_id), bytes(32),
                             Address("host", 9)).encode() for cluster_id in ("", "id")],
        "segment_object": [encode_footer(SEGMENT_FOOTER), pointer.encode(),
                           pointer.encode_trailer()],
        "diskless_object": [bytes(DISKLESS.buffers[-2]), bytes(DISKLESS.buffers[-1]),
                            b"".join(DISKLESS.buffers), bytes(RECEIPTS_ALONE.buffers[-2])],
        "remote_metadata": [KafkaSerde().serialize(value) for value in REMOTE_METADATA],
    }[name]

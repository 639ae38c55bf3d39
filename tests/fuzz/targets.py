"""Fuzz targets: one function per parser of foreign bytes.

A target takes any bytes.  It may end in the typed errors that the parser promises; anything else
that it raises is a bug.  What a parser accepts must also keep the promises stated here: encoding
what was decoded gives something that decodes to the same.

Run by tests/fuzz/run.py under atheris, and by tests/fuzz/test_targets.py with a small budget.
"""

import struct
from collections.abc import Callable
from uuid import UUID

import pyarrow as pa

from quipu.model.errors import MalformedBytes, QuipuError, RequestError
from quipu.model.ids import NodeId
from quipu.model.settings_types import Address
from quipu.pipeline.formats import _json_pure, json_scan
from quipu.pipeline.records import _columns_pure, columns
from quipu.pipeline.records.batches import Span, Wanted
from quipu.pipeline.records.transactions import Transactions
from quipu.runtime.peer_hello import Hello, Refused, decode_hello
from quipu.runtime.peer_net import Identity
from quipu.storage.scan import Scan
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
    wanted = Wanted(timestamp_type=True, headers=True)
    found = [_outcome(lambda gather=gather: [
        array.to_pylist() for array in gather(
            run, 0, Span(0, 1 << 62), wanted, Transactions([])).arrays])
        for gather in (columns.gather, _columns_pure.gather)]
    assert found[0] == found[1]


def json_text(data: bytes) -> None:
    """JSON: compiled and plain find the same faults, and the same members."""
    texts = pa.array([data.decode(errors="replace")])
    one, other = json_scan.members(texts, [b"a"]), _json_pure.members(texts, [b"a"])
    assert repr(one) == repr(other)


def peer_hello(data: bytes) -> None:
    """What a node says first: what is read from it says the same when it is said again."""
    try:
        hello = decode_hello(memoryview(data))
    except (MalformedBytes, Refused):
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


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target
    for target in (
        request, request_of_a_kind, produce, record_batch, batch_records, stored_batch, log_walk,
        record_columns, json_text, peer_hello)
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
    return {
        "request": frames, "request_of_a_kind": bodies, "produce": produced,
        "record_batch": batches, "stored_batch": stored,
        "batch_records": [bytes([number, 0]) + batch[HEADER_SIZE:]
                          for number, batch in enumerate(batches)],
        "log_walk": [*stored, stored[0] + stored[1]],
        "record_columns": batches, "json_text": [b'{"b": [1e5], "a": "\\u00e9\\n"}', b"[{}, null]"],
        "peer_hello": [Hello(Identity(NodeId(1), "a-0", UUID(int=1), cluster_id), bytes(32),
                             Address("host", 9)).encode() for cluster_id in ("", "id")],
    }[name]

"""Raw batches to Arrow columns: the compiled and the plain reader, and a stock client as oracle.

Where nothing is compiled, `gather` is the plain function, and these tests hold for it alone.
"""

import os
import random
import subprocess
import sys
from collections.abc import Sequence
from struct import pack, pack_into
from typing import Any

import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.pipeline.records import _columns_pure, columns
from quipu.pipeline.records.batches import BATCH_SIZE_MAX, OffsetSpan
from quipu.pipeline.records.columns import (
    Aborted,
    ColumnsPart,
    CorruptRecords,
    WantedColumns,
    read_columns,
    read_runs,
)
from quipu.pipeline.records.transactions import Transactions
from quipu.wire.compression import Compression
from quipu.wire.record_batch import (
    CONTROL_BIT,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    Record,
    encode_batch,
    set_log_append_time,
    write_varint,
)

ALL = WantedColumns(timestamp_type=True, headers=True)
EVERYTHING = 1 << 62
ABORT, COMMIT = pack(">hh", 0, 0), pack(">hh", 0, 1)

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
payloads = st.none() | st.binary(max_size=20) | st.binary(min_size=120, max_size=140)
records = st.lists(
    st.builds(Record, payloads, payloads,
              st.lists(st.tuples(names, payloads), max_size=3).map(tuple),
              st.sampled_from([-1, 0, 1_700_000_000_123, 253_402_300_799_999])),
    min_size=1, max_size=6)
batches = st.lists(st.tuples(records, st.sampled_from(Compression), st.integers(0, 3)), max_size=5)


def run_of(some: Sequence[tuple[list[Record], Compression, int]], offset: int = 0) -> list[bytes]:
    """Batches one after the other; the number is how many offsets compaction left out before."""
    made = []
    for group, codec, gap in some:
        offset += gap
        made.append(bytes(encode_batch(group, base_offset=offset, compression=codec)))
        offset += len(group)
    return made


def read(
    data: bytes, first: int = 0, end: int = EVERYTHING, wanted: WantedColumns = ALL, **options: Any
) -> tuple[pa.Table, int]:
    """All rows, and where to fetch next; both readers must agree about them."""
    found = []
    for gather in {columns.gather, _columns_pure.gather}:
        columns_gather, columns.gather = columns.gather, gather
        try:
            parts = list(read_columns(data, first=first, end=end, wanted=wanted, **options))
        finally:
            columns.gather = columns_gather
        found.append(whole(parts, first, wanted))
    assert found[0] == found[-1]
    return found[0]


def whole(parts: list[ColumnsPart], first: int, wanted: WantedColumns) -> tuple[pa.Table, int]:
    for part in parts:
        part.batch.validate(full=True)
    table = pa.Table.from_batches([part.batch for part in parts], wanted.schema)
    return table.combine_chunks(), parts[-1].next_offset if parts else first


def rows_by_aiokafka(made: list[bytes], first: int, end: int) -> list[dict[str, Any]]:
    return [
        {"key": record.key, "value": record.value, "offset": record.offset,
         "timestamp": None if record.timestamp == -1 else record.timestamp * 1000,
         "timestamp_type": record.timestamp_type,
         "headers": [{"key": key, "value": value} for key, value in record.headers]}
        for data in made for record in AiokafkaBatch(data) if first <= record.offset < end
    ]


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    if "timestamp" in table.column_names:
        index = table.column_names.index("timestamp")
        table = table.set_column(index, "timestamp", table["timestamp"].cast(pa.int64()))
    return table.to_pylist()


@given(some=batches, first=st.integers(0, 12), width=st.integers(0, 20),
       size_max=st.sampled_from([1, 100, 1 << 20]), cut=st.integers(0, 70))
@settings(max_examples=60, deadline=None)
def test_a_stock_client_reads_the_same(
    some: list[tuple[list[Record], Compression, int]], first: int, width: int, size_max: int,
    cut: int,
) -> None:
    """I2, I16, K2: every column, every codec, any range, a response that is cut anywhere."""
    made = run_of(some)
    data = b"".join(made)
    last = made[-1] if made else b""
    data = data[: len(data) - min(cut, len(last))]
    seen = made if cut == 0 else made[:-1]

    table, next_offset = read(data, first, first + width, size_max=size_max)

    assert rows_of(table) == rows_by_aiokafka(seen, first, first + width)
    ends = [batch_end(one) for one in seen]
    assert next_offset == first or next_offset <= max([first + width, *ends])
    if width and ends and ends[-1] > first:
        assert next_offset >= min(ends[-1], first + width)


@given(some=batches, first=st.integers(0, 12), width=st.integers(0, 20))
@settings(max_examples=60, deadline=None)
def test_batches_in_several_buffers_are_read_as_if_they_were_joined(
    some: list[tuple[list[Record], Compression, int]], first: int, width: int
) -> None:
    """I2, I17: every column, every codec, any range; and checksums once are enough."""
    made = run_of(some)
    runs = [memoryview(each) for each in made]
    span = {"first": first, "end": first + width, "wanted": ALL}
    expected = whole(list(read_columns(b"".join(made), **span)), first, ALL)
    for is_checked in (False, True):
        found = whole(list(read_runs(runs, **span, is_checked=is_checked)), first, ALL)
        assert rows_of(found[0]) == rows_of(expected[0])
        assert found[1] == expected[1]


def test_a_damaged_batch_among_several_buffers_is_named() -> None:
    """I15: what comes before it is read; one that was checked before is not checked again."""
    made = [bytearray(batch(offset)) for offset in range(3)]
    made[1][-1] ^= 1  # in a record: only the checksum tells
    runs = [memoryview(each) for each in made]
    parts = read_runs(runs, first=0, end=EVERYTHING, wanted=ALL)
    assert next(parts).next_offset == 1
    with pytest.raises(CorruptRecords, match="offset 1"):
        next(parts)
    made[1][-1] ^= 1
    made[1][17] ^= 1  # the checksum itself
    (part,) = read_runs(runs, first=0, end=EVERYTHING, wanted=ALL, is_checked=True)
    assert part.next_offset == 3


def test_aborted_transactions_are_hidden_in_several_buffers() -> None:
    """I16: markers and transactions, as in one buffer."""
    made = [batch(0, producer=7, flags=TRANSACTIONAL_BIT), marker(1, 7, ABORT), batch(2)]
    runs = [memoryview(each) for each in made]
    for aborted, offsets in (([Aborted(7, 0)], [2]), ([], [0, 2]), (None, [0, 2])):
        parts = read_runs(runs, first=0, end=EVERYTHING, wanted=ALL, aborted=aborted)
        table, end = whole(list(parts), 0, ALL)
        assert (table["offset"].to_pylist(), end) == (offsets, 3)


def batch_end(batch: bytes) -> int:
    return int.from_bytes(batch[:8]) + int.from_bytes(batch[23:27]) + 1


def test_only_what_is_wanted_is_made() -> None:
    """I4: no column that nobody asked for."""
    data = bytes(encode_batch([Record(b"k", b"v", (("h", b"1"),), 5)], base_offset=3))

    table, next_offset = read(data, wanted=WantedColumns(False, True, False, False))
    assert table.to_pylist() == [{"value": b"v"}]
    assert next_offset == 4
    table, _ = read(data, wanted=WantedColumns(False, False, True, False))
    assert table.to_pylist() == [{"offset": 3}]
    table, _ = read(data, wanted=WantedColumns(False, False, False, False, headers=True))
    assert table.to_pylist() == [{"headers": [{"key": "h", "value": b"1"}]}]


def test_the_types_are_those_of_the_columns() -> None:
    """I2: timestamps have a zone and may be null, offsets are bigint."""
    table, _ = read(b"")
    assert [str(kind) for kind in table.schema.types[:5]] == [
        "binary", "binary", "int64", "timestamp[us, tz=UTC]", "int32"]
    assert table.num_rows == 0


def test_the_broker_s_time_stands_for_every_record_that_it_set() -> None:
    """I16: LogAppendTime, and the timestamp type that tells."""
    batch = encode_batch([Record(None, b"a", timestamp=5), Record(None, b"b", timestamp=9)])
    set_log_append_time(memoryview(batch), 77)

    table, _ = read(bytes(batch))

    assert table["timestamp"].cast(pa.int64()).to_pylist() == [77_000, 77_000]
    assert table["timestamp_type"].to_pylist() == [1, 1]
    assert batch[22] & LOG_APPEND_TIME_BIT


@pytest.mark.parametrize("timestamp", [-1, -(1 << 62), (1 << 62), 253_402_300_800_000])
def test_a_time_that_nobody_set_or_no_calendar_has_is_null(timestamp: int) -> None:
    """I2: the column is nullable for these."""
    table, _ = read(bytes(encode_batch([Record(None, b"", timestamp=timestamp)])))
    assert table["timestamp"].to_pylist() == [None]


def test_names_of_headers_that_are_no_text_are_read_as_java_reads_them() -> None:
    """I16: with replacement characters; neighbours are untouched."""
    batch = encode_batch([Record(None, b"", (("ab", b"1"), ("fine", None)))])
    at = batch.index(b"ab")
    batch[at] = 0xFF
    table, _ = read(signed(batch))
    assert table["headers"].to_pylist() == [
        [{"key": "�b", "value": b"1"}, {"key": "fine", "value": None}]]


# ---------------------------------------------------------------- transactions

def batch(offset: int, *, producer: int = -1, flags: int = 0, count: int = 1,
          key: bytes | None = None) -> bytes:
    return bytes(encode_batch(
        [Record(key, b"%d" % (offset + index)) for index in range(count)], base_offset=offset,
        attributes=flags, producer_id=producer, producer_epoch=0, base_sequence=0))


def marker(offset: int, producer: int, key: bytes) -> bytes:
    return batch(offset, producer=producer, flags=TRANSACTIONAL_BIT | CONTROL_BIT, key=key)


TRANSACTIONS = b"".join([
    batch(0, producer=1, flags=TRANSACTIONAL_BIT),
    batch(1, producer=2, flags=TRANSACTIONAL_BIT, count=2),
    batch(3),
    marker(4, 1, COMMIT),
    batch(5, producer=1, flags=TRANSACTIONAL_BIT),  # aborted
    marker(6, 2, ABORT),
    batch(7, producer=2, flags=TRANSACTIONAL_BIT),  # a later transaction, committed
    marker(8, 1, ABORT),
    marker(9, 2, COMMIT),
    batch(10, producer=1),
])
LIST = [Aborted(1, 5), Aborted(2, 1)]


@pytest.mark.parametrize("size_max", [1, 1 << 20])
def test_aborted_transactions_and_markers_are_not_read(size_max: int) -> None:
    """I18: read-committed, also where a response is read in several parts."""
    table, next_offset = read(TRANSACTIONS, aborted=LIST, size_max=size_max)
    assert table["offset"].to_pylist() == [0, 3, 7, 10]
    assert next_offset == 11
    table, next_offset = read(TRANSACTIONS, 1, 7, aborted=LIST, size_max=size_max)
    assert table["offset"].to_pylist() == [3]
    assert next_offset >= 7


def test_readers_of_uncommitted_records_see_all_but_markers() -> None:
    """I18: nobody sees markers."""
    table, _ = read(TRANSACTIONS)
    assert table["offset"].to_pylist() == [0, 1, 2, 3, 5, 7, 10]


def test_offsets_go_on_where_nothing_is_seen() -> None:
    """I18: a run of nothing but markers still tells where to fetch next."""
    table, next_offset = read(marker(6, 2, ABORT) + marker(7, 3, COMMIT), 6, aborted=[])
    assert (table.num_rows, next_offset) == (0, 8)


# ---------------------------------------------------------------- damage

def signed(batch: bytes | bytearray) -> bytes:
    """The same with the checksum that it needs."""
    made = bytearray(batch)
    pack_into(">I", made, 17, crc32c(bytes(made[21:])))
    return bytes(made)


def corrupt(data: bytes, **options: Any) -> CorruptRecords:
    """The error that both readers give."""
    found = []
    for gather in (columns.gather, _columns_pure.gather):
        with pytest.raises(CorruptRecords) as caught:
            gather(memoryview(data), 0, OffsetSpan(0, EVERYTHING), ALL, Transactions([]))
        found.append(caught.value)
    assert str(found[0]) == str(found[1])
    return found[0]


def with_body(body: bytes, count: int = 1) -> bytes:
    made = bytearray(batch(5))[:61] + body
    pack_into(">i", made, 8, len(made) - 12)
    pack_into(">i", made, 57, count)
    return signed(made)


def varint(number: int) -> bytes:
    out = bytearray()
    write_varint(out, number)
    return bytes(out)


HOSTILE = {
    "a flipped bit": (batch(5)[:-1] + b"\x55", "checksum"),
    "an old message format": (batch(5)[:16] + b"\x01" + batch(5)[17:], "format 1"),
    "a length of nothing": (batch(5)[:8] + bytes(4) + batch(5)[12:], "a length of 0 bytes"),
    "a negative offset": (b"\xff" * 8 + batch(5)[8:], "out of range"),
    "an unknown codec": (signed(batch(5)[:22] + b"\x07" + batch(5)[23:]), "codec 7"),
    "bytes that no codec made": (signed(batch(5)[:22] + b"\x04" + batch(5)[23:]), "zstd"),
    "more records than bytes": (with_body(bytes(7), 2_000_000_000), "cannot lie in 7 bytes"),
    "fewer than no records": (with_body(bytes(7), -1), "cannot lie in 7 bytes"),
    "a record longer than its batch": (with_body(varint(2**31 - 1) + bytes(9)), "does not fit"),
    "a key longer than its record": (
        with_body(b"\x0c\0\0\0" + varint(60) + b"\x01\0"), "do not fit"),
    "a negative length": (with_body(b"\x0c\0\0\0\x03\x01\0"), "do not fit"),
    "a number without end": (with_body(b"\xff" * 20), "number"),
    "a time of eleven bytes": (with_body(b"\x1e\0" + b"\xff" * 10 + b"\x01" * 5), "number"),
    "an offset past the batch's last": (with_body(b"\x0c\0\0\x02\x01\x01\0"), "offset delta 1"),
    "more headers than bytes": (with_body(b"\x0c\0\0\0\x01\x01\x7e"), "63 record headers"),
    "a header without name": (with_body(b"\x10\0\0\0\x01\x01\x02\x01\x01"), "null name"),
    "bytes after a record's end": (with_body(b"\x0e\0\0\0\x01\x01\0\0"), "too many"),
    "bytes after the last record": (with_body(b"\x0c\0\0\0\x01\x01\0\0\0"), "follow the last"),
}


@pytest.mark.parametrize(("data", "text"), HOSTILE.values(), ids=HOSTILE.keys())
def test_damage_is_named_with_its_offset_and_costs_nothing_before_it(
    data: bytes, text: str
) -> None:
    """K8, I15: no over-read, no memory for what a length claims, and one clear error."""
    error = corrupt(data)
    assert text in str(error)
    assert error.offset == int.from_bytes(data[:8], signed=True)

    parts = read_columns(batch(3, count=2) + data, first=0, end=EVERYTHING, wanted=ALL)
    assert next(parts).batch["offset"].to_pylist() == [3, 4]
    with pytest.raises(CorruptRecords):
        next(parts)


def test_a_small_batch_cannot_fill_the_memory() -> None:
    """K8: what a batch decompresses to is bounded."""
    bomb = encode_batch([Record(None, bytes(1 << 20))], compression=Compression.ZSTD)
    pack_into(">i", bomb, 57, 2**31 - 1)
    assert "cannot lie" in str(corrupt(signed(bomb)))
    assert BATCH_SIZE_MAX < 1 << 31


def test_a_batch_without_records_only_moves_the_offset() -> None:
    """K5: compaction leaves such batches behind."""
    empty = bytearray(batch(5, count=3)[:61])
    pack_into(">i", empty, 8, 49)
    pack_into(">i", empty, 57, 0)
    table, next_offset = read(signed(empty) + batch(8))
    assert table["offset"].to_pylist() == [8]
    assert next_offset == 9


def test_random_damage_never_gets_through() -> None:
    """K8: with the checksum made right again, both readers still agree, rows or error."""
    rng = random.Random(7)
    good = encode_batch([
        Record(b"key%d" % index, b"v" * index, (("h", b"x"),), index) for index in range(9)])
    for _ in range(600):
        made = bytearray(good)
        for _ in range(rng.randint(1, 3)):
            made[rng.randrange(21, len(made))] = rng.randrange(256)
        data = signed(made)
        found = []
        for gather in (columns.gather, _columns_pure.gather):
            try:
                span = OffsetSpan(0, EVERYTHING)
                chunk = gather(memoryview(data), 0, span, ALL, Transactions([]))
            except CorruptRecords as error:
                found.append(str(error))
            else:
                found.append([array.to_pylist() for array in chunk.arrays])
        assert found[0] == found[1]


def test_the_plain_reader_serves_when_asked_for() -> None:
    """I12: QUIPU_PURE=1 chooses it."""
    program = "from quipu.pipeline.records import columns; print(columns.COMPILED)"
    answer = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True,
                            text=True, env={**os.environ, "QUIPU_PURE": "1"})
    assert answer.stdout.strip() == "False"

"""Ranges to Arrow batches, over a broker that says what it is told."""

from struct import pack

import pyarrow as pa
import pytest

from quipu.client.errors import DataLost
from quipu.client.ranges import Range
from quipu.client.settings import ClientSettings, client_settings
from quipu.pipeline.reading.loop import read_ranges
from quipu.pipeline.records.columns import CorruptRecords, WantedColumns
from quipu.wire.record_batch import CONTROL_BIT, TRANSACTIONAL_BIT, Record, encode_batch
from tests.client.fake_kafka import FakeKafka

ABORT, COMMIT = pack(">hh", 0, 0), pack(">hh", 0, 1)


def written(base: int, *values: bytes, producer: int = -1) -> bytes:
    attributes = TRANSACTIONAL_BIT if producer >= 0 else 0
    return bytes(encode_batch(
        [Record(None, value) for value in values], base_offset=base, attributes=attributes,
        producer_id=producer, producer_epoch=0, base_sequence=0))


def marker(base: int, kind: bytes, producer: int) -> bytes:
    return bytes(encode_batch(
        [Record(kind, b"\0" * 6)], base_offset=base, producer_id=producer, producer_epoch=0,
        attributes=TRANSACTIONAL_BIT | CONTROL_BIT))


LOG = [
    written(0, b"plain"), written(1, b"aborted", producer=5), written(2, b"good", producer=6),
    marker(3, ABORT, 5), written(4, b"again", producer=5), marker(5, COMMIT, 6),
    marker(6, COMMIT, 5), written(7, b"last"),
]


def settings_for(fake: FakeKafka, **more: str) -> ClientSettings:
    given = {name.replace("_", "."): value for name, value in more.items()}
    return client_settings({"bootstrap.servers": fake.bootstrap, **given})


@pytest.mark.parametrize(("isolation", "expected"), [
    ("read_uncommitted", [(0, b"plain"), (1, b"aborted"), (2, b"good"), (4, b"again"),
                          (7, b"last")]),
    ("read_committed", [(0, b"plain"), (2, b"good"), (4, b"again"), (7, b"last")]),
])
def test_committed_or_not(isolation: str, expected: list[tuple[int, bytes]]) -> None:
    """I18: aborted transactions are left out if asked for, markers always."""
    with FakeKafka() as fake:
        fake.serve_log("t", LOG, end=8, aborted=[(5, 1)])
        settings = settings_for(fake, isolation_level=isolation)
        reads = list(read_ranges(
            settings, [Range("t", 0, 0, 8)], WantedColumns(key=False, timestamp=False)))
        table = pa.Table.from_batches([read.batch for read in reads])
        assert table.column_names == ["value", "offset"]
        assert [(row["offset"], row["value"]) for row in table.to_pylist()] == expected
        assert {read.range for read in reads} == {Range("t", 0, 0, 8)}
        asked = [request.isolation_level for request, _ in fake.asked
                 if hasattr(request, "isolation_level")]
        assert set(asked) == {int(isolation == "read_committed")}


def test_damage_and_loss_are_told() -> None:
    with FakeKafka() as fake:
        damaged = bytearray(LOG[0])
        damaged[-1] ^= 1
        fake.serve_log("t", [bytes(damaged)], end=1)
        with pytest.raises(CorruptRecords, match="the batch at offset 0 is corrupt"):
            list(read_ranges(settings_for(fake), [Range("t", 0, 0, 1)], WantedColumns()))
        fake.serve_log("t", LOG[7:], start=7, end=8)
        with pytest.raises(DataLost):
            list(read_ranges(settings_for(fake), [Range("t", 0, 0, 8)], WantedColumns()))
        lost: list[DataLost] = []
        (read,) = read_ranges(
            settings_for(fake), [Range("t", 0, 0, 8)], WantedColumns(), on_loss=lost.append)
        assert (read.batch.num_rows, read.next_offset, len(lost)) == (1, 8, 1)

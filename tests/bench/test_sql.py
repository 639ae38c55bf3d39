"""`quipu bench sql`: its rows are real, and its numbers follow from what was counted."""

import json

import numpy as np
import pytest

from quipu.cli.bench import sql_data
from quipu.cli.bench.control import BenchError
from quipu.cli.bench.sql_data import RowKind
from quipu.wire.record_batch import check_batch, decode_records


def kind(**changes: int) -> RowKind:
    return RowKind(**{"count": 20_000, "value_size": 100, "keys": 5_000, **changes})


def test_rows_are_record_batches_that_anybody_can_read() -> None:
    """K9: keys and values of a fixed size, JSON within, offsets of one byte and of two."""
    wanted = kind()
    found = []
    for batch in sql_data.batches(wanted, 1):
        check_batch(memoryview(bytearray(batch)), size_max=1 << 20)
        found += list(decode_records(memoryview(batch), size_max=1 << 20))

    numbers = wanted.numbers(1)
    assert len(found) == len(numbers) == 10_000
    assert [record.key for record in found] == [str(each).encode() for each in
                                                wanted.ids(numbers).tolist()]
    assert {len(record.value or b"") for record in found} == {100}
    assert json.loads(found[-1].value or b"")["id"] == int(found[-1].key or b"")
    assert len({json.loads(record.value or b"")["amount"] for record in found}) == 10_000


def test_the_same_rows_as_an_arrow_table() -> None:
    """K9: what Parquet is filled with is what the topic is filled with."""
    wanted = kind(count=300, keys=300)
    table = sql_data.arrow_table(wanted, "t", 0)
    (batch,) = sql_data.batches(wanted, 0)
    records = list(decode_records(memoryview(batch), size_max=1 << 20))

    assert table.column("key").to_pylist() == [record.key for record in records]
    assert table.column("value").to_pylist() == [record.value for record in records]
    assert table.column("offset").to_pylist() == list(range(150))


def test_every_key_comes_once_before_any_comes_again() -> None:
    """K9: so many keys as were asked for, each in one partition."""
    wanted = kind(count=10_000, keys=4_000)
    by_partition = [wanted.ids(wanted.numbers(partition)) for partition in range(2)]

    for ids in by_partition:
        assert len(np.unique(ids[:2_000])) == len(np.unique(ids)) == 2_000
    assert len(np.unique(np.concatenate(by_partition))) == 4_000


def test_values_too_small_for_their_content_are_refused() -> None:
    with pytest.raises(BenchError, match="values of"):
        kind(value_size=10)

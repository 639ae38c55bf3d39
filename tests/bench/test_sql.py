"""`quipu bench sql`: its rows are real, and its numbers follow from what was counted."""

import json

import numpy as np
import pytest

from quipu.bench.errors import BenchError
from quipu.bench.measured import Latency, Measured
from quipu.bench.sql import rows
from quipu.bench.sql.command import PARTS, parts_of
from quipu.bench.sql.report import Rounds, SqlPart, SqlReport
from quipu.bench.sql.rows import RowKind
from quipu.wire.record_batch import check_batch, decode_records


def kind(**changes: int) -> RowKind:
    return RowKind(**{"count": 20_000, "value_size": 100, "keys": 5_000, **changes})


def test_rows_are_record_batches_that_anybody_can_read() -> None:
    """K9: keys and values of a fixed size, JSON within, offsets of one byte and of two."""
    wanted = kind()
    found = []
    for batch in rows.batches(wanted, 1):
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
    table = rows.arrow_table(wanted, "t", 0)
    (batch,) = rows.batches(wanted, 0)
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


def measured(seconds: float, cpu_seconds: float) -> Measured:
    return Measured(seconds=seconds, requests=0, records=1_000, size=100_000,
                    latency=Latency.of([0.25, 0.5]), server_cpu_seconds=cpu_seconds)


def test_ways_are_compared_by_their_best_rounds() -> None:
    """K9: by rows a second, and by rows for a second of a core."""
    ways = {"quipu": Rounds([measured(2, 4), measured(4, 2)]), "Parquet": Rounds([measured(1, 1)])}
    part = SqlPart("raw", ways).compare("quipu", "Parquet", number="P12", aim=0.6)

    by_time, by_cpu = part.ratios
    assert (by_time.number, by_time.value, by_time.is_met) == ("P12", 0.5, False)
    assert (by_cpu.number, by_cpu.value, by_cpu.is_met) == ("", 0.5, None)
    (row, _) = part.rows()
    assert (row["rows/s"], row["median"], row["rows/core s"]) == (500, 375, 500)
    assert (row["CPU s/GB"], row["p50 ms"], row["p99 ms"]) == (20_000, 500, 500)


def test_a_report_is_for_people_and_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    """K9: the same numbers as a table and as one JSON object."""
    part = SqlPart("raw", {"quipu": Rounds([measured(1, 1)]), "Parquet": Rounds([measured(1, 1)])})
    report = SqlReport(load={"rows": 1_000}, parts=[part.compare("quipu", "Parquet")])

    report.show(as_json=False)
    assert "raw: quipu / Parquet" in capsys.readouterr().out
    report.show(as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["ratios"][0]["value"] == 1
    assert len(found["parts"][0]["rounds"]["quipu"]) == 1


def test_parts_are_chosen_by_name() -> None:
    """K8: a name that there is not is told with those that there are."""
    assert parts_of(None) == PARTS
    assert parts_of("upsert, raw") == ("raw", "upsert")
    with pytest.raises(BenchError, match="'cooked' is none of raw, direct, diskless, json, upsert"):
        parts_of("raw,cooked")

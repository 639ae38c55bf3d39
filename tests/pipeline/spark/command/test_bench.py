"""`quipu bench sql` on a real Spark, with a few rows: every part is measured, none is timed."""

import pytest
from pyspark.sql import SparkSession

from quipu.bench.control import parse_address
from quipu.bench.sql.command import PARTS
from quipu.bench.sql.parts import SqlBench, SqlLoad, measure
from quipu.bench.target import Target
from tests.harness.node import RunningNode


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_every_part_is_measured(spark: SparkSession, node: RunningNode) -> None:
    """K9, I4, I20: P12 and P14 have values, freshness has its spread; CPU is Spark's own."""
    broker = Target(parse_address(node.bootstrap), None, None, is_temporary=False)
    load = SqlLoad(rows=4_000, keys=500, rounds=1, rate=200, seconds=1.0)
    with SqlBench(broker, load, spark=spark) as stage:
        report = measure(stage, [part for part in PARTS if part != "direct"])  # it has no tier

    ratios = {each.number: each for part in report.parts for each in part.ratios if each.number}
    assert set(ratios) == {"P12", "P14"}
    assert all((each.value or 0) > 0 for each in ratios.values())
    ways = {name: way for part in report.parts for name, way in part.ways.items()}
    assert {"quipu", "Parquet", "consumer", "bytes", "JSON", "upsert"} <= set(ways)
    assert all(way.found[0].server_cpu_seconds is not None for way in ways.values())
    (fresh,) = report.parts[-1].ways.values()
    assert fresh.found[0].latency is not None
    assert fresh.found[0].latency.count >= 200

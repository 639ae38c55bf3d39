"""`quipu bench sql`: measures the pipeline on Spark, and other ways to read the same rows.

    raw        format("quipu") against Parquet and against a plain consumer      P12
    direct     rows of a remote tier, from its objects against through the broker   P13
    diskless   rows of a diskless topic, from its objects against through the broker
    json       a source that decodes JSON, without INCLUDE and with all of it
    upsert     a materialized source with ENVELOPE UPSERT against raw            P14
    freshness  from produce to visible in a view, at a fixed rate

The ways are measured alternately in several rounds, after one round to warm up.
"""

import time
from typing import Annotated, Final

import typer

from quipu.bench.errors import BenchError
from quipu.bench.target import target
from quipu.cli.output import note

PARTS: Final = ("raw", "direct", "diskless", "json", "upsert", "freshness")
OWN_NODE: Final = ("direct", "diskless")  # parts that need settings of a node


def sql(
    *,
    bootstrap: Annotated[str | None, typer.Option(
        "--bootstrap", "-b", metavar="HOST:PORT",
        help="Address of any Kafka broker. [a temporary node that is removed at the end]")] = None,
    rows: Annotated[int, typer.Option(
        min=1000, max=1_000_000_000,
        help="Number of rows of 100 bytes; of rows of 1000 bytes there are a quarter as many.",
    )] = 4_000_000,
    keys: Annotated[int, typer.Option(
        min=100, max=500_000_000, help="Number of different keys for upsert.")] = 1_000_000,
    only: Annotated[str | None, typer.Option(
        metavar="PART,…", help=f"Measure only these parts: {', '.join(PARTS)}. [all]")] = None,
    rounds: Annotated[
        int, typer.Option(min=1, max=100, help="Number of measurements of each way.")] = 3,
    rate: Annotated[int, typer.Option(
        min=1, max=1_000_000, help="Rows a second for freshness.")] = 10_000,
    seconds: Annotated[float, typer.Option(
        min=1, max=3600, help="How long freshness is measured.")] = 5.0,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="Master URL of Spark. [local[*]]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")]
    = False,
) -> None:
    """Measure rows a second through Spark, as ratios to Parquet and to a plain consumer."""
    from quipu.bench.sql.parts import (  # noqa: PLC0415 Spark, only now
        TIER_SETTINGS,
        SqlBench,
        SqlLoad,
        measure,
    )

    begun = time.monotonic()
    load = SqlLoad(rows=rows, keys=keys, rounds=rounds, rate=rate, seconds=seconds)
    wanted = parts_of(only)
    if only is None and bootstrap is not None:
        note("direct and diskless are left out: they need a node with a remote tier and diskless "
             "topics; --only direct,diskless measures them")
        wanted = tuple(part for part in wanted if part not in OWN_NODE)
    with target(bootstrap, None, TIER_SETTINGS) as broker, SqlBench(broker, load, master) as bench:
        report = measure(bench, wanted)
    report.show(as_json=as_json)
    note(f"{time.monotonic() - begun:.0f} s")


def parts_of(only: str | None) -> tuple[str, ...]:
    """The parts of --only, in the order of `PARTS`; all without it."""
    if only is None:
        return PARTS
    words = [word.strip() for word in only.split(",")]
    for word in words:
        if word not in PARTS:
            raise BenchError(f"--only {word!r} is none of {', '.join(PARTS)}")
    return tuple(part for part in PARTS if part in words)

"""`quipu bench sql`: how fast rows get through Spark, beside other ways to get the same rows.

    raw        format("quipu") against Parquet and against a plain consumer      P12
    json       a source that decodes JSON, without INCLUDE and with all of it
    upsert     a materialized source with ENVELOPE UPSERT against raw            P14
    freshness  from produce to visible in a view, at a fixed rate

Ways take turns, several rounds, after one that warms everything up.
"""

import time
from typing import Annotated, Final

import typer

from quipu.cli.bench.control import BenchError
from quipu.cli.bench.target import target
from quipu.cli.output import tell

PARTS: Final = ("raw", "json", "upsert", "freshness")


def sql(
    *,
    bootstrap: Annotated[str | None, typer.Option(
        "--bootstrap", "-b", metavar="HOST:PORT",
        help="Any Kafka broker; without it a temporary node is started and removed.")] = None,
    rows: Annotated[int, typer.Option(
        min=1000, max=1_000_000_000, help="Rows of 100 bytes; of 1000 bytes a quarter of it.",
    )] = 4_000_000,
    keys: Annotated[int, typer.Option(
        min=100, max=500_000_000, help="Different keys under UPSERT.")] = 1_000_000,
    only: Annotated[str | None, typer.Option(
        metavar="PART,…", help=f"Some of {', '.join(PARTS)}.")] = None,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="Of each way.")] = 3,
    rate: Annotated[int, typer.Option(
        min=1, max=1_000_000, help="Rows a second, for freshness.")] = 10_000,
    seconds: Annotated[float, typer.Option(
        min=1, max=3600, help="How long freshness is measured.")] = 5.0,
    master: Annotated[str | None, typer.Option(metavar="URL", help="Spark's master.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")]
    = False,
) -> None:
    """Rows a second through Spark, as ratios to Parquet and to a plain consumer."""
    from quipu.cli.bench.sql_parts import Load, Stage, measure  # noqa: PLC0415 Spark, only now

    begun = time.monotonic()
    load = Load(rows=rows, keys=keys, rounds=rounds, rate=rate, seconds=seconds)
    wanted = parts_of(only)
    with target(bootstrap, None) as broker, Stage(broker, load, master) as stage:
        report = measure(stage, wanted)
    report.show(as_json=as_json)
    tell(f"{time.monotonic() - begun:.0f} s")


def parts_of(only: str | None) -> tuple[str, ...]:
    """The parts that were asked for, in our order."""
    if only is None:
        return PARTS
    words = [word.strip() for word in only.split(",")]
    for word in words:
        if word not in PARTS:
            raise BenchError(f"--only {word!r} is none of {', '.join(PARTS)}")
    return tuple(part for part in PARTS if part in words)

"""`quipu bench capacity`: what diskless topics cost, predicted, and measured beside it."""

from dataclasses import asdict
from typing import Annotated

import typer

from quipu.bench.diskless.capacity import GIB, LIMITS, Capacity, DisklessLoad
from quipu.bench.diskless.capacity import capacity as predicted
from quipu.bench.diskless.measured_capacity import MeasuredCapacity, measure
from quipu.bench.errors import BenchError
from quipu.bench.frames import make_batch
from quipu.bench.machine import machine
from quipu.bench.report import machine_line
from quipu.cli.output import note, plain_table, print_json

INTERVALS = "100,250,500,1000"
PARTITIONS = "1,12,100"
OBJECTS_MIN = 8  # of each node
COLUMNS = ("partitions", "interval ms", "objects/s", "object bytes", "puts/GiB", "put bytes/byte",
           "commits/GiB", "notifications/GiB", "finds/GiB", "gets/GiB", "get bytes/byte",
           "run rows/GiB")
COMPARED = ("load", "for each GiB", "predicted", "measured", "difference")


def capacity(
    *,
    racks: Annotated[int, typer.Option(min=1, max=100, help="Racks with clients.")] = 3,
    brokers: Annotated[int, typer.Option(min=1, max=1000, help="Brokers in each rack.")] = 1,
    partitions: Annotated[str, typer.Option(
        metavar="N,...", help="Numbers of partitions.")] = PARTITIONS,
    intervals: Annotated[str, typer.Option(
        metavar="MS,...", help="Values of diskless.flush.interval.ms.")] = INTERVALS,
    flush_bytes: Annotated[int, typer.Option(
        min=64 << 10, max=GIB, help="diskless.flush.bytes.")] = LIMITS.flush_bytes,
    rate: Annotated[float, typer.Option(
        min=0.001, max=1e6, help="Batches a second that each broker gets.")] = 95.0,
    size: Annotated[int, typer.Option(
        min=1, max=1 << 20, help="Bytes of a record, of which a batch has one.")] = 1000,
    is_measured: Annotated[bool, typer.Option(
        "--measure", help="Count what a temporary cluster does, one node a rack, beside it.")
    ] = False,
    seconds: Annotated[float, typer.Option(
        min=0.1, max=3600, help="How long to produce, with --measure, each load.")] = 10.0,
    as_json: Annotated[bool, typer.Option(
        "--json", help="One JSON object instead of tables.")] = False,
) -> None:
    """Predict objects, transactions, bytes and rows for each GiB of diskless topics."""
    if is_measured and brokers != 1:
        raise BenchError("--measure has one broker in each rack: leave out --brokers")
    batch = make_batch(record_size=size, batch_size=1)
    loads = [
        DisklessLoad(racks=racks, brokers_per_rack=brokers, partitions=count,
                     batch_size=len(batch.data), batches_per_second=rate,
                     flush_interval_ms=interval, flush_bytes=flush_bytes)
        for count in _numbers("--partitions", partitions, PARTITIONS)
        for interval in _numbers("--intervals", intervals, INTERVALS)]
    costs = [(load, predicted(load)) for load in loads]
    found: list[MeasuredCapacity] = []
    for load, cost in costs if is_measured else ():
        note(f"measuring: {load.partitions} partitions, {load.flush_interval_ms} ms")
        objects = round(seconds * cost.objects_per_second / load.brokers)
        found.append(measure(load, batch, max(OBJECTS_MIN, objects)))
    if as_json:
        print_json({
            "machine": machine(),
            "predicted": [{"load": asdict(load), "cost": asdict(cost)} for load, cost in costs],
            "measured": [row for each in found for row in each.rows()]})
        return
    print(plain_table([_row(load, cost) for load, cost in costs], list(COLUMNS)), end="")
    if found:
        print()
        print(plain_table([row for each in found for row in each.rows()], list(COMPARED)), end="")
        print(machine_line(machine()))


def _row(load: DisklessLoad, cost: Capacity) -> dict[str, object]:
    return dict(zip(COLUMNS, (
        load.partitions, load.flush_interval_ms, round(cost.objects_per_second, 1),
        cost.object_size, round(cost.puts), round(cost.put_bytes / GIB, 3), round(cost.commits),
        round(cost.notifications), round(cost.finds), round(cost.gets),
        round(cost.get_bytes / GIB, 3), round(cost.run_rows)), strict=True))


def _numbers(option: str, text: str, example: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and 0 < int(word) < 1 << 31 for word in words):
        raise BenchError(f"{option} {text!r} is not a list of numbers, such as {example}")
    return [int(word) for word in words]

"""`quipu bench placement`: time, memory and moves of placement and reconciliation (D34)."""

from pathlib import Path
from typing import Annotated

import typer

from quipu.bench.errors import BenchError
from quipu.bench.machine import machine
from quipu.bench.placement.events import RACK_BROKERS_MIN, EventCost, Size, measure
from quipu.bench.placement.picture import draw
from quipu.bench.plot import check_plot
from quipu.bench.processes import in_child
from quipu.bench.report import machine_line
from quipu.cli.output import note, plain_table, print_json

DIVISORS = (10, 4, 1)  # of the size, to show how costs grow


def placement(
    *,
    brokers: Annotated[int, typer.Option(min=1, max=1_000_000, help="Brokers.")] = 10_000,
    racks: Annotated[int, typer.Option(min=2, max=10_000, help="Racks.")] = 100,
    partitions: Annotated[
        int, typer.Option(min=1, max=100_000_000, help="Diskless partitions.")] = 1_000_000,
    as_json: Annotated[bool, typer.Option(
        "--json", help="One JSON object instead of a table.")] = False,
    plot: Annotated[Path | None, typer.Option(
        metavar="FILE", help="Draw the growth to a png, svg or pdf file.")] = None,
) -> None:
    """Measure managed placement, without brokers: events on a cluster, and on parts of it."""
    if brokers < RACK_BROKERS_MIN * racks:
        raise BenchError(f"{brokers} brokers in {racks} racks: there must be "
                         f"{RACK_BROKERS_MIN} in each rack")
    check_plot(plot)
    costs: list[EventCost] = []
    for divisor in DIVISORS:
        size = Size(brokers, racks, partitions).part(divisor)
        note(f"measuring: {size.partitions:,} partitions on {size.brokers:,} brokers")
        costs += in_child(measure, size)  # a process of its own: its memory is that of one size
    rows = [each.row() for each in costs]
    if as_json:
        print_json({"machine": machine(), "rows": rows})
    else:
        print(plain_table(rows, list(rows[0])), end="")
        print(machine_line(machine()))
    if plot is not None:
        draw(costs, plot)
        note(f"drawn: {plot}")

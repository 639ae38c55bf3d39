"""`quipu bench diskless`: latency, rates and costs of diskless topics."""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from quipu.bench.diskless.costs import COLUMNS, Costs, consume_rates, latencies, produce_rates
from quipu.bench.errors import BenchError
from quipu.bench.machine import machine
from quipu.bench.report import as_dict, machine_line, show_ratios
from quipu.bench.s3_server import s3_server
from quipu.cli.output import note, plain_table, print_json

INTERVALS = "10,50,100,250,500"


def diskless(
    *,
    seconds: Annotated[float, typer.Option(
        min=0.1, max=600, help="How long to measure, each load and round.")] = 2.0,
    intervals: Annotated[str, typer.Option(
        metavar="MS,...", help="Values of diskless.flush.interval.ms.")] = INTERVALS,
    store: Annotated[str | None, typer.Option(
        metavar="URL", help="An object store, as diskless.storage.url; the objects stay there. "
        "[a directory that is removed at the end]")] = None,
    s3: Annotated[bool, typer.Option(
        "--s3", help="Use moto's S3 server, in a process of its own.")] = False,
    as_json: Annotated[bool, typer.Option(
        "--json", help="One JSON object instead of tables.")] = False,
) -> None:
    """Measure diskless topics on temporary nodes: latency, rates, and requests per GiB."""
    if s3 and store is not None:
        raise BenchError("--s3 and --store: give one of them")
    wanted = _intervals(intervals)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="quipu-bench-diskless-"))
        url = store or Path(folder).absolute().as_uri()
        if s3:
            served = stack.enter_context(s3_server(folder))
            if served is None:
                raise BenchError("--s3 needs moto and flask: pip install 'moto[s3]' flask")
            url = served
        costs = _measure(_below(url, "latency"), wanted, seconds)
        for part, name in ((produce_rates, "produce"), (consume_rates, "consume")):
            note(f"measuring: {name}")
            found = part(_below(url, name), seconds)
            costs.rows.extend(found.rows)
            costs.ratios.extend(found.ratios)
    if as_json:
        print_json(_as_json(costs))
        return
    print(plain_table([each.row() for each in costs.rows], list(COLUMNS)), end="")
    show_ratios(costs.ratios)
    print(machine_line(machine()))


def _measure(url: str, wanted: list[int], seconds: float) -> Costs:
    note("measuring: latency by flush interval")
    return Costs(list(latencies(url, wanted, seconds)), [])


def _below(url: str, name: str) -> str:
    """The same store, under another prefix: raw gets read only what one node has written."""
    place, mark, parameters = url.partition("?")
    return f"{place.rstrip('/')}/{name}{mark}{parameters}"


def _intervals(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise BenchError(f"--intervals {text!r} is not a list of milliseconds, such as {INTERVALS}")
    return [int(word) for word in words]


def _as_json(costs: Costs) -> dict[str, object]:
    return {
        "machine": machine(),
        "rows": [{**each.row(), "measured": as_dict(each.measured),
                  "counted": None if each.counted is None else each.counted._asdict()}
                 for each in costs.rows],
        "ratios": [each.row() for each in costs.ratios],
    }

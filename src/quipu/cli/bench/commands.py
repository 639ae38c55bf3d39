"""`quipu bench produce | consume | latency | sql`: options in, a report out."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from quipu.cli.application import PLAIN
from quipu.cli.bench import limits, runs
from quipu.cli.bench.control import BenchError
from quipu.cli.bench.measured import Measured
from quipu.cli.bench.plot import check_plot, draw
from quipu.cli.bench.report import Ratio, Report, ratio
from quipu.cli.bench.runs import Load, Session
from quipu.cli.bench.sql import sql
from quipu.cli.bench.target import target
from quipu.cli.output import tell

CLIENTS = ("raw", "librdkafka")
ACKS = {"0": 0, "1": 1, "all": -1, "-1": -1}
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")

app = typer.Typer(
    help="Measure a broker, and beside it, in the same run, what the machine allows.", **PLAIN
)

app.command()(sql)

Bootstrap = Annotated[str | None, typer.Option(
    "--bootstrap", "-b", metavar="HOST:PORT",
    help="Any Kafka broker; without it a temporary node is started and removed.")]
Pid = Annotated[int | None, typer.Option(
    help="The broker's process, for its CPU; found by itself for a broker on this machine.")]
Seconds = Annotated[float, typer.Option(min=0.1, max=3600, help="How long to measure.")]
Size = Annotated[int, typer.Option(min=1, max=1 << 20, help="Bytes of one record's value.")]
BatchSize = Annotated[int, typer.Option("--batch", min=1, max=64 << 20, help="Bytes of a batch.")]
Acks = Annotated[str, typer.Option(help="0, 1 or all.")]
Connections = Annotated[int, typer.Option(min=1, max=20_000, help="How many.")]
Partitions = Annotated[int, typer.Option(min=1, max=100_000, help="Of the topic that is made.")]
Pipeline = Annotated[int, typer.Option(min=1, max=10_000, help="Requests in flight each.")]
Compression = Annotated[str, typer.Option(help=", ".join(COMPRESSIONS) + ".")]
Client = Annotated[str, typer.Option(
    help="raw: frames made beforehand, little CPU; or librdkafka: a real client and its cost.")]
Config = Annotated[list[str], typer.Option(
    "--config", "-c", metavar="KEY=VALUE", help="A setting of the topic; may be given often.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")]
Plot = Annotated[Path | None, typer.Option(metavar="FILE", help="Draw a picture: png, svg, pdf.")]


@app.command()
def produce(
    *,
    bootstrap: Bootstrap = None,
    seconds: Seconds = 5.0,
    size: Size = 1000,
    batch: BatchSize = 64 << 10,
    acks: Acks = "1",
    connections: Connections = 1,
    partitions: Partitions = 1,
    pipeline: Pipeline = 8,
    compression: Compression = "none",
    client: Client = "raw",
    config: Config = [],  # noqa: B006 typer copies it
    pid: Pid = None,
    as_json: AsJson = False,
    plot: Plot = None,
) -> None:
    """Throughput of producing."""
    load = Load(
        seconds=seconds, record_size=size, batch_size=batch, acks=_acks(acks),
        connections=connections, partitions=partitions, pipeline=pipeline,
        compression=_one_of("--compression", compression, COMPRESSIONS),
        client=_one_of("--client", client, CLIENTS), configs=_configs(config),
    )
    _run(produce_report, load, bootstrap, pid, (as_json, plot))


@app.command()
def consume(
    *,
    bootstrap: Bootstrap = None,
    seconds: Seconds = 5.0,
    size: Size = 1000,
    batch: BatchSize = 64 << 10,
    fetch: Annotated[
        int, typer.Option(min=1, max=64 << 20, help="Bytes asked for at once.")] = 1 << 20,
    preload: Annotated[
        int, typer.Option(min=1, help="Bytes produced beforehand, to be read.")] = 256 << 20,
    connections: Connections = 1,
    partitions: Partitions = 1,
    compression: Compression = "none",
    client: Client = "raw",
    config: Config = [],  # noqa: B006 typer copies it
    pid: Pid = None,
    as_json: AsJson = False,
    plot: Plot = None,
) -> None:
    """Throughput of consuming old data."""
    load = Load(
        seconds=seconds, record_size=size, batch_size=batch, fetch_size=fetch,
        preload_size=preload, connections=connections, partitions=partitions,
        compression=_one_of("--compression", compression, COMPRESSIONS),
        client=_one_of("--client", client, CLIENTS), configs=_configs(config),
    )
    _run(consume_report, load, bootstrap, pid, (as_json, plot))


@app.command()
def latency(
    *,
    bootstrap: Bootstrap = None,
    seconds: Seconds = 5.0,
    rate: Annotated[
        float, typer.Option(min=1, max=1_000_000, help="Requests a second, one record each.")
    ] = 1000.0,
    size: Size = 100,
    acks: Acks = "1",
    client: Client = "raw",
    config: Config = [],  # noqa: B006 typer copies it
    pid: Pid = None,
    as_json: AsJson = False,
    plot: Plot = None,
) -> None:
    """Latency at a fixed rate, counted from when each request was due."""
    if _acks(acks) == 0:
        raise BenchError("--acks 0 is never answered, so it has no latency; use 1 or all")
    load = Load(
        seconds=seconds, rate=rate, record_size=size, batch_size=1, acks=_acks(acks),
        client=_one_of("--client", client, CLIENTS), configs=_configs(config),
    )
    _run(latency_report, load, bootstrap, pid, (as_json, plot))


# --- reports ----------------------------------------------------------------------------------


def produce_report(run: Session) -> Report:
    """Throughput, latency under load and CPU, and the limits of P1, P2 and P3."""
    with _scratch(run) as directory:
        appended, found = runs.around(
            lambda: runs.limit_append(run, directory), lambda: runs.broker_produce(run)
        )
        by_request = runs.limit_append(run, directory, by_request=True)
        echoed = runs.limit_echo(run)
        crc = limits.crc(run.batch)
        page_cache = limits.page_cache(directory, run.batch)
    return Report(
        title=_title("produce", run, f"acks={run.load.acks}"), load=_load(run),
        broker={"broker": found},
        limits={"receive + append": appended, "the same, a write per batch": by_request,
                "receive + answer": echoed, "page-cache append": page_cache, "CRC-32C": crc},
        ratios=produce_ratios(
            found, appended, echoed,
            _plus(by_request.cpu_seconds_per_gigabyte, crc.cpu_seconds_per_gigabyte)),
    )


def produce_ratios(
    found: Measured, appended: Measured, echoed: Measured, floor: float | None
) -> list[Ratio]:
    """P1 and P2; the share of a bare server's requests carries no aim for batches of any size."""
    return [
        Ratio(number="P1", about="throughput / receive + append", aim=0.8,
              value=ratio(found.megabytes_per_second, appended.megabytes_per_second)),
        Ratio(number="P2", about="broker CPU per GB / receive + append + CRC", aim=1.5,
              better="lower", value=ratio(found.cpu_seconds_per_gigabyte, floor)),
        Ratio(number="P3", about="requests / bare echo server",
              value=ratio(found.requests_per_second or None, echoed.requests_per_second)),
    ]


def consume_report(run: Session) -> Report:
    """Throughput and CPU of reading old data, and the limits of P4."""
    runs.preload(run)
    with _scratch(run) as directory:
        sent, found = runs.around(
            lambda: runs.limit_send(run, directory, by_sendfile=True),
            lambda: runs.broker_consume(run),
        )
        from_memory = runs.limit_send(run, directory, by_sendfile=False)
    share = ratio(found.megabytes_per_second, sent.megabytes_per_second)
    cpu = ratio(found.cpu_seconds_per_gigabyte, sent.cpu_seconds_per_gigabyte)
    return Report(
        title=_title("consume", run, f"fetches of {run.load.fetch_size:,} bytes"), load=_load(run),
        broker={"broker": found}, limits={"sendfile": sent, "send from memory": from_memory},
        ratios=[
            Ratio(number="P4", about="throughput / sendfile of a file", value=share, aim=0.8),
            Ratio(number="", about="broker CPU per GB / sendfile", value=cpu, better="lower"),
        ],
    )


def latency_report(run: Session) -> Report:
    """Latency of Produce and from end to end at a rate, and the limit of P6."""
    window = run.limit_window()
    before = limits.echo_at_rate(run.produce_frame(), rate=run.load.rate, window=window)
    found = runs.broker_latency(run)
    after = limits.echo_at_rate(run.produce_frame(), rate=run.load.rate, window=window)
    echoed = runs.mean(before.produce, after.produce)
    broker = {"produce": found.produce}
    if found.end_to_end is not None:
        broker["end to end"] = Measured(
            seconds=found.produce.seconds, requests=0, records=found.produce.records, size=0,
            latency=found.end_to_end,
        )
    return Report(
        title=_title("latency", run, f"{run.load.rate:g} requests/s, acks={run.load.acks}"),
        load=_load(run), broker=broker, limits={"receive + answer": echoed},
        ratios=[Ratio(number="P6", about="produce p99 / echo p99", aim=2.0, better="lower",
                      value=ratio(_p99(found.produce), _p99(echoed)))],
    )


# --- small things -----------------------------------------------------------------------------


def _run(
    report: Callable[[Session], Report], load: Load, bootstrap: str | None, pid: int | None,
    output: tuple[bool, Path | None],
) -> None:
    as_json, plot = output
    check_plot(plot)
    with target(bootstrap, pid) as found:
        if found.pid is None:
            tell("the broker's process is not on this machine (or is hidden): no CPU is measured")
        with runs.session(found, load) as run:
            made = report(run)
    made.show(as_json=as_json)
    if plot is not None:
        draw(made, plot)
        tell(f"drawn: {plot}")


@contextmanager
def _scratch(run: Session) -> Iterator[str]:
    with limits.scratch(run.target.directory) as directory:
        yield directory


def _title(command: str, run: Session, detail: str) -> str:
    load, batch = run.load, run.batch
    process = "" if run.target.pid is None else f" (pid {run.target.pid})"
    return (
        f"quipu bench {command}: {run.target.address}{process}, {load.client} client, "
        f"{load.connections} x {load.pipeline} in flight, {load.partitions} partitions, {detail}, "
        f"batches of {len(batch.data):,} bytes with {batch.record_count:,} records"
    )


def _load(run: Session) -> dict[str, object]:
    load = run.load
    return {
        "address": str(run.target.address), "pid": run.target.pid, "client": load.client,
        "seconds": load.seconds, "record_size": load.record_size,
        "batch_size": len(run.batch.data), "batch_records": run.batch.record_count,
        "acks": load.acks, "connections": load.connections, "partitions": load.partitions,
        "pipeline": load.pipeline, "compression": load.compression, "rate": load.rate,
        "fetch_size": load.fetch_size, "configs": load.configs,
    }


def _p99(measured: Measured) -> float | None:
    return None if measured.latency is None else measured.latency.p99_us


def _plus(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first + second


def _acks(text: str) -> int:
    if text not in ACKS:
        raise BenchError(f"--acks {text!r} is none of 0, 1, all")
    return ACKS[text]


def _one_of(option: str, text: str, words: tuple[str, ...]) -> str:
    if text not in words:
        raise BenchError(f"{option} {text!r} is none of {', '.join(words)}")
    return text


def _configs(words: list[str]) -> dict[str, str]:
    pairs = [word.partition("=") for word in words]
    wrong = [name + sign for name, sign, _ in pairs if not name or not sign]
    if wrong:
        raise BenchError(f"--config {wrong[0]!r} is not KEY=VALUE")
    return {name: value for name, _, value in pairs}

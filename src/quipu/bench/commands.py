"""The commands of `quipu bench` that measure and report: produce, consume, latency and others."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from quipu.bench import against as turns
from quipu.bench import limits, runs, tier
from quipu.bench.diskless.capacity_command import capacity
from quipu.bench.diskless.command import diskless
from quipu.bench.diskless.nodes import NODE_SETTINGS as DISKLESS_SETTINGS
from quipu.bench.errors import BenchError
from quipu.bench.measured import Measured
from quipu.bench.placement.command import placement
from quipu.bench.plot import check_plot, draw
from quipu.bench.report import Ratio, Report, ratio
from quipu.bench.runs import BenchRun, RunLoad
from quipu.bench.sql.command import sql
from quipu.bench.target import target
from quipu.cli.application import PLAIN
from quipu.cli.output import note

CLIENTS = ("raw", "librdkafka")
ACKS = {"0": 0, "1": 1, "all": -1, "-1": -1}
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")

app = typer.Typer(
    help="Measure a broker, and in the same run the limits of the machine.", **PLAIN
)

app.command()(capacity)
app.command()(diskless)
app.command()(placement)
app.command()(sql)

Bootstrap = Annotated[str | None, typer.Option(
    "--bootstrap", "-b", metavar="HOST:PORT,...",
    help="Addresses of any Kafka broker, the first that responds; QUIPU_BOOTSTRAP is not used. "
    "[a temporary node that is removed at the end]")]
Pid = Annotated[int | None, typer.Option(
    help="Process id of the broker, to measure its CPU. [found for a broker on this machine]")]
Seconds = Annotated[float, typer.Option(min=0.1, max=3600, help="How long to measure.")]
Size = Annotated[int, typer.Option(min=1, max=1 << 20, help="Bytes of one record's value.")]
BatchSize = Annotated[int, typer.Option("--batch", min=1, max=64 << 20, help="Bytes of a batch.")]
Acks = Annotated[str, typer.Option(help="Acknowledgements to wait for: 0, 1 or all.")]
Connections = Annotated[int, typer.Option(min=1, max=20_000, help="Number of connections.")]
Partitions = Annotated[
    int, typer.Option(min=1, max=100_000, help="Number of partitions of the temporary topic.")]
Pipeline = Annotated[
    int, typer.Option(min=1, max=10_000, help="Requests in flight on each connection.")]
CompressionName = Annotated[
    str, typer.Option(help=f"Compression of batches: {', '.join(COMPRESSIONS)}.")]
Client = Annotated[str, typer.Option(
    help="raw: requests encoded beforehand, little CPU; librdkafka: a real client and its cost.")]
Config = Annotated[list[str], typer.Option(
    "--config", "-c", metavar="KEY=VALUE", help="A setting of the topic; may be repeated.")]
Against = Annotated[str | None, typer.Option(
    "--against", metavar="HOST:PORT",
    help="Address of a second broker, of any make: both are measured in turns, and their ratio is "
    "told.")]
Rounds = Annotated[int, typer.Option(
    min=1, max=1000, help="How often each broker is measured with --against.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")]
Plot = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Draw the report to a png, svg or pdf file.")]


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
    compression: CompressionName = "none",
    client: Client = "raw",
    config: Config = [],  # noqa: B006 typer copies it
    pid: Pid = None,
    against: Against = None,
    rounds: Rounds = turns.ROUNDS,
    as_json: AsJson = False,
    plot: Plot = None,
) -> None:
    """Measure the throughput of producing."""
    load = RunLoad(
        seconds=seconds, record_size=size, batch_size=batch, acks=_acks(acks),
        connections=connections, partitions=partitions, pipeline=pipeline,
        compression=_one_of("--compression", compression, COMPRESSIONS),
        client=_one_of("--client", client, CLIENTS), configs=_configs(config),
    )
    if against is not None:
        _compare(turns.PRODUCE, load, (bootstrap, against), rounds, (as_json, plot))
    else:
        _run(produce_report, load, bootstrap, pid, (as_json, plot))


@app.command()
def consume(
    *,
    bootstrap: Bootstrap = None,
    seconds: Seconds = 5.0,
    size: Size = 1000,
    batch: BatchSize = 64 << 10,
    fetch: Annotated[
        int, typer.Option(min=1, max=64 << 20, help="Largest size of a response.")] = 1 << 20,
    preload: Annotated[
        int, typer.Option(min=1, help="Bytes that are produced before reading.")] = 256 << 20,
    tiered: Annotated[bool, typer.Option(
        "--tiered", help="Read what only the broker's remote tier has: one of Quipu's nodes moves "
        "the topic there before.")] = False,
    connections: Connections = 1,
    partitions: Partitions = 1,
    compression: CompressionName = "none",
    client: Client = "raw",
    config: Config = [],  # noqa: B006 typer copies it
    pid: Pid = None,
    against: Against = None,
    rounds: Rounds = turns.ROUNDS,
    as_json: AsJson = False,
    plot: Plot = None,
) -> None:
    """Measure the throughput of consuming old data."""
    if tiered and against is not None:
        raise BenchError("--tiered reads what only Quipu has: leave --against out")
    if tiered and (partitions != 1 or client != "raw"):
        raise BenchError("--tiered reads one partition with the raw client")
    configs = _configs(config)
    load = RunLoad(
        seconds=seconds, record_size=size, batch_size=batch, fetch_size=fetch,
        preload_size=preload, connections=connections, partitions=partitions,
        compression=_one_of("--compression", compression, COMPRESSIONS),
        client=_one_of("--client", client, CLIENTS), is_tiered=tiered,
        configs=tier.moving_configs(configs) if tiered else configs,
    )
    if against is not None:
        _compare(turns.CONSUME, load, (bootstrap, against), rounds, (as_json, plot))
    else:
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
    against: Against = None,
    rounds: Rounds = turns.ROUNDS,
    as_json: AsJson = False,
    plot: Plot = None,
) -> None:
    """Measure latency at a fixed rate, from when each request was due."""
    if _acks(acks) == 0:
        raise BenchError("--acks 0 has no responses, and so no latency; use 1 or all")
    load = RunLoad(
        seconds=seconds, rate=rate, record_size=size, batch_size=1, acks=_acks(acks),
        client=_one_of("--client", client, CLIENTS), configs=_configs(config),
    )
    if against is not None:
        _compare(turns.LATENCY, load, (bootstrap, against), rounds, (as_json, plot))
    else:
        _run(latency_report, load, bootstrap, pid, (as_json, plot))


# --- reports ----------------------------------------------------------------------------------


def produce_report(run: BenchRun) -> Report:
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
    """The ratios P1, P2 and P3; P3 has no aim here, as it is meant for small batches."""
    return [
        Ratio(number="P1", about="throughput / receive + append", aim=0.8,
              value=ratio(found.megabytes_per_second, appended.megabytes_per_second)),
        Ratio(number="P2", about="broker CPU per GB / receive + append + CRC", aim=1.5,
              better="lower", value=ratio(found.cpu_seconds_per_gigabyte, floor)),
        Ratio(number="P3", about="requests / bare echo server",
              value=ratio(found.requests_per_second or None, echoed.requests_per_second)),
    ]


def consume_report(run: BenchRun) -> Report:
    """Throughput and CPU of reading old data, and the limits of P4."""
    end = None
    if run.load.is_tiered:
        end = tier.move(run)
    else:
        runs.preload(run)
    with _scratch(run) as directory:
        sent, found = runs.around(
            lambda: runs.limit_send(run, directory, by_sendfile=True),
            lambda: runs.broker_consume(run, end=end),
        )
        from_memory = runs.limit_send(run, directory, by_sendfile=False)
    share = ratio(found.megabytes_per_second, sent.megabytes_per_second)
    cpu = ratio(found.cpu_seconds_per_gigabyte, sent.cpu_seconds_per_gigabyte)
    return Report(
        title=_title("consume", run, f"fetches of {run.load.fetch_size:,} bytes"
                     f"{' from the remote tier' if run.load.is_tiered else ''}"), load=_load(run),
        broker={"broker": found}, limits={"sendfile": sent, "send from memory": from_memory},
        ratios=[
            Ratio(number="" if run.load.is_tiered else "P4", value=share,
                  about="throughput / sendfile of a file", aim=None if run.load.is_tiered else 0.8),
            Ratio(number="", about="broker CPU per GB / sendfile", value=cpu, better="lower"),
        ],
    )


def latency_report(run: BenchRun) -> Report:
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


# --- helpers ----------------------------------------------------------------------------------


def _run(
    report: Callable[[BenchRun], Report], load: RunLoad, bootstrap: str | None, pid: int | None,
    output: tuple[bool, Path | None],
) -> None:
    as_json, plot = output
    check_plot(plot)
    with target(bootstrap, pid, _node_settings(load)) as found:
        if found.pid is None:
            note("the broker's process is not visible on this machine: its CPU is not measured")
        with runs.bench_run(found, load) as run:
            made = report(run)
    made.show(as_json=as_json)
    if plot is not None:
        draw(made, plot)
        note(f"drawn: {plot}")


def _compare(
    work: turns.Work, load: RunLoad, addresses: tuple[str | None, str], rounds: int,
    output: tuple[bool, Path | None],
) -> None:
    as_json, plot = output
    if plot is not None:
        raise BenchError("--plot draws one broker: leave --against out, or use --json")
    ours, theirs = addresses
    with target(ours, None, _node_settings(load)) as first, target(theirs, None) as second:
        if first.address == second.address:
            raise BenchError(f"--bootstrap and --against are the same broker, {second.address}")
        if first.pid is None or second.pid is None:
            note("a broker's process is not visible on this machine: its CPU is not measured")
        both = {turns.OURS: first, turns.THEIRS: second}
        turns.compare(work, load, both, rounds).show(as_json=as_json)


def _node_settings(load: RunLoad) -> dict[str, str]:
    """What a temporary node needs for the topic of a run."""
    settings = dict(tier.NODE_SETTINGS) if load.is_tiered else {}
    if load.configs.get("diskless.enable", "").lower() == "true":
        settings |= DISKLESS_SETTINGS
    return settings


@contextmanager
def _scratch(run: BenchRun) -> Iterator[str]:
    with limits.scratch(run.target.directory) as directory:
        yield directory


def _title(command: str, run: BenchRun, detail: str) -> str:
    load, batch = run.load, run.batch
    process = "" if run.target.pid is None else f" (pid {run.target.pid})"
    return (
        f"quipu bench {command}: {run.target.address}{process}, {load.client} client, "
        f"{load.connections} x {load.pipeline} in flight, {load.partitions} partitions, {detail}, "
        f"batches of {len(batch.data):,} bytes with {batch.record_count:,} records"
    )


def _load(run: BenchRun) -> dict[str, object]:
    load = run.load
    return {
        "address": str(run.target.address), "pid": run.target.pid, "client": load.client,
        "seconds": load.seconds, "record_size": load.record_size,
        "batch_size": len(run.batch.data), "batch_records": run.batch.record_count,
        "acks": load.acks, "connections": load.connections, "partitions": load.partitions,
        "pipeline": load.pipeline, "compression": load.compression, "rate": load.rate,
        "fetch_size": load.fetch_size, "configs": load.configs, "tiered": load.is_tiered,
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

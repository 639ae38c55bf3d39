"""What `quipu bench sql` measures: one way each to get the same rows.

    raw        format("quipu"), all Kafka columns
    parquet    Spark's own reader, the same rows and columns from files without compression
    ready      a source in Python that has its rows ready: the limit of all such sources
    consumer   librdkafka in a process of its own: rows counted, nothing else
    query      a SELECT from a source
    materialize   a materialized source, from CREATE until it has all rows
    freshness  how old rows are when a subscriber sees them

Each ends in a sink that throws rows away.  CPU is that of Spark's Java process and of all Python
workers below it; the broker's is not in it, though it shares the cores.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from quipu.cli.bench import sql_data, sql_ready
from quipu.cli.bench.control import BenchError
from quipu.cli.bench.measured import Latency, Measured
from quipu.cli.bench.processes import in_child
from quipu.cli.bench.sql_data import RowKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from quipu.pipeline.spark.pipeline import Pipeline

CONSUME_COUNT: Final = 10_000
CONSUME_SECONDS_MAX: Final = 300.0
CATCH_UP_SECONDS_MAX: Final = 600.0
FRESH_SIZE: Final = 100
ROW_GROUP_SIZE: Final = 128 << 20  # what Spark itself writes


def measured(work: Callable[[], object], kind: RowKind) -> Measured:
    """How long some work on all rows took, and the CPU that Spark spent."""
    before, begun = spark_cpu_seconds(), time.perf_counter()
    work()
    seconds = time.perf_counter() - begun
    return Measured(
        seconds=seconds, requests=0, records=kind.count, size=kind.size, latency=None,
        server_cpu_seconds=spark_cpu_seconds() - before,
    )


def spark_cpu_seconds() -> float:
    """CPU of the Java process below this one and of its workers, ended ones included."""
    total = 0.0
    for child in psutil.Process().children():
        if child.name() == "java":
            total += sum(map(_cpu_seconds, [child, *child.children(recursive=True)]))
    return total


def _cpu_seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:  # its parent counts it from now on
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


def raw(spark: "SparkSession", bootstrap: str, topic: str, kind: RowKind) -> Measured:
    """Every record as it is."""
    frame = (spark.read.format("quipu").option("kafka.bootstrap.servers", bootstrap)
             .option("subscribe", topic).load())
    return measured(lambda: discard(frame), kind)


def parquet(spark: "SparkSession", folder: Path, kind: RowKind) -> Measured:
    """The same rows from files."""
    frame = spark.read.parquet(str(folder))
    return measured(lambda: discard(frame), kind)


def ready(spark: "SparkSession", kind: RowKind) -> Measured:
    """Rows that are neither fetched nor decoded."""
    frame = (spark.read.format(sql_ready.NAME).option("rows", kind.count)
             .option("size", kind.value_size).load())
    return measured(lambda: discard(frame), kind)


def write_parquet(folder: Path, topic: str, kind: RowKind) -> None:
    """The same rows, a file per partition, without compression, in row groups of a usual size."""
    folder.mkdir()
    for partition in range(kind.partitions):
        table = sql_data.arrow_table(kind, topic, partition)
        pq.write_table(table, folder / f"{partition}.parquet", compression="none",
                       use_dictionary=["topic"],
                       row_group_size=max(1, ROW_GROUP_SIZE * kind.count // kind.size))


def consumer(bootstrap: str, topic: str, kind: RowKind) -> Measured:
    """What a plain client takes for the same rows."""
    found = in_child(consume_all, bootstrap, topic, (kind.count, kind.partitions, kind.size))
    assert isinstance(found, Measured)
    return found


def consume_all(bootstrap: str, topic: str, wanted: tuple[int, int, int]) -> Measured:
    """Read all rows of a topic once; the time counts from the first of them."""
    count, partitions, size = wanted
    client = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "quipu-bench", "enable.auto.commit": False,
        "auto.offset.reset": "earliest", "fetch.message.max.bytes": 1 << 20,
        "queued.max.messages.kbytes": 256 << 10, "queued.min.messages": 1_000_000,
        "fetch.queue.backoff.ms": 5,  # by default a full queue costs a second
    })
    client.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
    deadline = time.perf_counter() + CONSUME_SECONDS_MAX
    taken = len(client.consume(1, CONSUME_SECONDS_MAX))
    begun, cpu = time.perf_counter(), time.process_time()
    try:
        while taken < count:
            messages = client.consume(CONSUME_COUNT, 1.0)
            if any(message.error() for message in messages) or time.perf_counter() > deadline:
                raise BenchError(f"the consumer got {taken} of {count} rows")
            taken += len(messages)
    except KafkaException as error:
        raise BenchError(f"the consumer failed: {error}") from None
    seconds = time.perf_counter() - begun
    client.close()
    return Measured(
        seconds=seconds, requests=0, records=count, size=size, latency=None,
        server_cpu_seconds=time.process_time() - cpu,
    )


def discard(frame: "DataFrame") -> None:
    """Make every row, and keep none."""
    writer: Any = frame.write
    writer.format("noop").mode("overwrite").save()


# --- sources and views ------------------------------------------------------------------------


def query(pipeline: "Pipeline", text: str, kind: RowKind) -> Measured:
    """Every row of a SELECT."""
    frame = cast("DataFrame", pipeline.execute(text))
    return measured(lambda: discard(frame), kind)


def values_only(spark: "SparkSession", bootstrap: str, topic: str, kind: RowKind) -> Measured:
    """The values as they are, by a reader that is asked for nothing else."""
    frame = (spark.read.format("quipu").option("kafka.bootstrap.servers", bootstrap)
             .option("subscribe", topic).option("columns", "value").load())
    return measured(lambda: discard(frame), kind)


def materialize(pipeline: "Pipeline", name: str, statement: str, kind: RowKind) -> Measured:
    """From CREATE to a view that has everything; it is dropped afterwards."""

    def work() -> None:
        pipeline.execute(statement)
        if not pipeline.catch_up(CATCH_UP_SECONDS_MAX):
            raise BenchError(f"{name} did not catch up within {CATCH_UP_SECONDS_MAX:.0f} s: "
                             f"{pipeline.progress()}")

    found = measured(work, kind)
    pipeline.execute(f"DROP SOURCE {name}")
    return found


# --- freshness --------------------------------------------------------------------------------


def freshness(
    pipeline: "Pipeline", name: str, bootstrap: str, topic: str, load: tuple[int, float]
) -> Measured:
    """How old rows are when SUBSCRIBE shows them; `load` is rows a second, and seconds.

    The view must show a column `produced_at`, when its row was produced.
    """
    rate, seconds = load
    wanted = int(rate * seconds)
    changes = pipeline.subscribe(name, snapshot=False)
    producing = threading.Thread(
        target=in_child, args=(produce_at_rate, bootstrap, topic, rate, seconds))
    timer = threading.Timer(seconds + CATCH_UP_SECONDS_MAX, changes.close)
    cpu, begun = spark_cpu_seconds(), time.perf_counter()
    producing.start()
    timer.start()
    ages: list[float] = []
    for step in changes.steps:
        for batch in step.batches:
            now = time.time()
            came = batch.filter(pc.greater(batch.column("#diff"), 0)).column("produced_at")
            ages += [now - each / 1e6 for each in came.cast(pa.int64()).to_pylist()]
        if len(ages) >= wanted:
            break
    timer.cancel()
    producing.join()
    if len(ages) < wanted:
        raise BenchError(f"{len(ages)} of {wanted} rows were seen")
    return Measured(
        seconds=time.perf_counter() - begun, requests=0, records=wanted,
        size=wanted * FRESH_SIZE, latency=Latency.of(ages),
        server_cpu_seconds=spark_cpu_seconds() - cpu,
    )


def produce_at_rate(bootstrap: str, topic: str, rate: int, seconds: float) -> None:
    """Rows with keys of their own, evenly in time, each with the time at which it was due."""
    client = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1})
    value = b"x" * FRESH_SIZE
    begun = time.time()
    for number in range(int(rate * seconds)):
        due = begun + number / rate
        while (ahead := due - time.time()) > 0:
            client.poll(min(ahead, 0.001))
        client.produce(topic, value, str(number).encode(), timestamp=int(due * 1000))
    left = client.flush(CONSUME_SECONDS_MAX)
    if left:
        raise BenchError(f"{left} rows were not produced")

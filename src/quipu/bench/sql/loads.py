"""The ways to read the same rows that `quipu bench sql` measures.

    raw        format("quipu"), all Kafka columns; also from the remote tier, past the broker or not
    parquet    Spark's own reader, the same rows and columns from files without compression
    ready      a data source in Python without work: the limit of all such data sources
    consumer   librdkafka in a process of its own, which only counts the rows
    query      a SELECT from a source
    materialize   a materialized source, from CREATE until it has all rows
    freshness  how old rows are when a subscriber sees them

Each writes its rows to a sink that discards them.  The CPU is that of Spark's Java process and of
its Python workers, without the broker's, though the broker shares the cores.
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

from quipu.bench.errors import BenchError
from quipu.bench.measured import Latency, Measured
from quipu.bench.processes import in_child
from quipu.bench.sql import ready_source, rows
from quipu.bench.sql.rows import RowKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from quipu.pipeline.spark.statements.pipeline import Pipeline

CONSUME_COUNT: Final = 10_000
CONSUME_SECONDS_MAX: Final = 300.0
CATCH_UP_SECONDS_MAX: Final = 600.0
FRESH_SIZE: Final = 100
ROW_GROUP_SIZE: Final = 128 << 20  # the default of Spark's Parquet writer


def measured(work: Callable[[], object], kind: RowKind) -> Measured:
    """The time of some work on all rows, and the CPU that Spark used."""
    before, begun = spark_cpu_seconds(), time.perf_counter()
    work()
    seconds = time.perf_counter() - begun
    return Measured(
        seconds=seconds, requests=0, records=kind.count, size=kind.size, latency=None,
        server_cpu_seconds=spark_cpu_seconds() - before,
    )


def spark_cpu_seconds() -> float:
    """CPU of this process's Java child and of its Python workers, ended ones included."""
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


def raw(
    spark: "SparkSession", bootstrap: str, topic: str, kind: RowKind, **options: str
) -> Measured:
    """Read every record with all Kafka columns, unless `options` say otherwise."""
    frame = (spark.read.format("quipu").option("kafka.bootstrap.servers", bootstrap)
             .option("subscribe", topic).options(**options).load())
    return measured(lambda: discard(frame), kind)


def parquet(spark: "SparkSession", folder: Path, kind: RowKind) -> Measured:
    """Read the same rows from Parquet files."""
    frame = spark.read.parquet(str(folder))
    return measured(lambda: discard(frame), kind)


def ready(spark: "SparkSession", kind: RowKind) -> Measured:
    """Read rows that are neither fetched nor decoded."""
    frame = (spark.read.format(ready_source.NAME).option("rows", kind.count)
             .option("size", kind.value_size).load())
    return measured(lambda: discard(frame), kind)


def write_parquet(folder: Path, topic: str, kind: RowKind) -> None:
    """Write the same rows, a file per partition, without compression, in row groups as Spark's."""
    folder.mkdir()
    for partition in range(kind.partitions):
        table = rows.arrow_table(kind, topic, partition)
        pq.write_table(table, folder / f"{partition}.parquet", compression="none",
                       use_dictionary=["topic"],
                       row_group_size=max(1, ROW_GROUP_SIZE * kind.count // kind.size))


def consumer(bootstrap: str, topic: str, kind: RowKind) -> Measured:
    """Read the same rows with a plain librdkafka consumer."""
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
        "fetch.queue.backoff.ms": 5,  # by default the client pauses for 1 s at a full queue
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
    """Compute every row, and discard it."""
    writer: Any = frame.write
    writer.format("noop").mode("overwrite").save()


# --- sources and views ------------------------------------------------------------------------


def query(pipeline: "Pipeline", text: str, kind: RowKind) -> Measured:
    """Read every row of a SELECT."""
    frame = cast("DataFrame", pipeline.execute(text))
    return measured(lambda: discard(frame), kind)


def values_only(spark: "SparkSession", bootstrap: str, topic: str, kind: RowKind) -> Measured:
    """Read only the column `value` with format("quipu")."""
    frame = (spark.read.format("quipu").option("kafka.bootstrap.servers", bootstrap)
             .option("subscribe", topic).option("columns", "value").load())
    return measured(lambda: discard(frame), kind)


def materialize(pipeline: "Pipeline", name: str, statement: str, kind: RowKind) -> Measured:
    """Create a materialized source and wait until it has all rows; it is dropped afterwards."""

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
    """The age of rows when SUBSCRIBE shows them; `load` is rows a second, and seconds.

    The view must have a column `produced_at` with the time at which the row was produced.
    """
    rate, seconds = load
    wanted = int(rate * seconds)
    subscription = pipeline.subscribe(name, snapshot=False)
    producing = threading.Thread(
        target=in_child, args=(produce_at_rate, bootstrap, topic, rate, seconds))
    timer = threading.Timer(seconds + CATCH_UP_SECONDS_MAX, subscription.close)
    cpu, begun = spark_cpu_seconds(), time.perf_counter()
    producing.start()
    timer.start()
    ages: list[float] = []
    for change in subscription.changes:
        for batch in change.batches:
            now = time.time()
            added = batch.filter(pc.greater(batch.column("#diff"), 0)).column("produced_at")
            ages += [now - each / 1e6 for each in added.cast(pa.int64()).to_pylist()]
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
    """Produce rows with different keys at a rate; the timestamp of each is when it was due."""
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

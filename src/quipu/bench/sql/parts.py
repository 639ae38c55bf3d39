"""The parts of `quipu bench sql`: which ways they measure, and which they compare."""

import contextlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, Self

from pyspark.sql import SparkSession

from quipu.bench import control
from quipu.bench.measured import Measured
from quipu.bench.processes import cost_of
from quipu.bench.sql import loads, rows
from quipu.bench.sql.ready_source import ReadySource
from quipu.bench.sql.report import Rounds, SqlPart, SqlReport
from quipu.bench.sql.rows import RowKind
from quipu.bench.target import Target
from quipu.bench.tier import await_moved
from quipu.cli.output import note
from quipu.client.admin.topics import delete_topic
from quipu.client.cluster import Cluster
from quipu.pipeline.spark.data_source.register import register
from quipu.pipeline.spark.statements.pipeline import Pipeline, connect

SMALL: Final = 100
LARGE: Final = 1_000
LARGE_SHARE: Final = 4  # times fewer large rows than small ones
P12_AIMS: Final = {SMALL: 0.6, LARGE: 1.0}
KEPT: Final = {"retention.ms": "-1", "retention.bytes": "-1", "flush.ms": str(2**63 - 1)}
P13_AIM: Final = 2.0
SEGMENT_SIZE: Final = 8 << 20
TIERED: Final = {**KEPT, "remote.storage.enable": "true", "segment.bytes": str(SEGMENT_SIZE),
                 "local.retention.bytes": str(SEGMENT_SIZE)}
TIER_SETTINGS: Final = {  # of the temporary node
    "remote.log.storage.system.enable": "true", "remote.log.manager.task.interval.ms": "500",
    "log.retention.check.interval.ms": "500", "diskless.storage.system.enable": "true"}
DISKLESS: Final = {"retention.ms": "-1", "retention.bytes": "-1", "diskless.enable": "true"}
TIER_SHARE: Final = 0.8  # of a topic's rows, at least, are only in the tier before it is read

P14_AIMS: Final = ((1_000_000, 0.12), (10_000_000, 0.08))  # (up to this many keys, aim)
UPDATED_SHARE: Final = 5  # at least one of this many keys is updated
INCLUDED: Final = "KEY AS k, TIMESTAMP, OFFSET, PARTITION, TOPIC, HEADERS"
SETTINGS: Final = {"spark.driver.memory": "2g", "quipu.wait.ms": "600000"}

Way = Callable[[], Measured]


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlLoad:
    """The load of a run, from the command's options."""

    rows: int
    keys: int
    rounds: int
    rate: int
    seconds: float


class SqlBench:
    """What a run of `quipu bench sql` uses: a broker, its topics, a directory, and Spark."""

    def __init__(
        self, broker: Target, load: SqlLoad, master: str | None = None,
        spark: SparkSession | None = None,
    ) -> None:
        self.bootstrap = str(broker.address)
        self.load = load
        self._broker = broker
        self._master = master
        self._given = spark
        self._stack = contextlib.ExitStack()
        self._topics: list[str] = []
        self._filled: dict[RowKind, str] = {}

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            made = stack.enter_context(tempfile.TemporaryDirectory(prefix="quipu-bench-sql-"))
            self.folder = Path(made)
            self.pipeline: Pipeline = connect(
                self._given, state=self.folder / "state", master=self._master, settings=SETTINGS)
            stack.callback(self.pipeline.close)
            self.spark = self.pipeline.spark
            register(self.spark)
            self.spark.dataSource.register(ReadySource)
            stack.callback(self._delete_topics)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def topic(self, kind: RowKind) -> str:
        """A topic that holds these rows; created and filled by the first call."""
        if kind not in self._filled:
            name = self.empty_topic(kind.partitions)
            note(f"producing {kind.count:,} rows of {kind.value_size} bytes")
            rows.produce(kind, name, self._broker.address)
            self._filled[kind] = name
        return self._filled[kind]

    def tiered_topic(self, kind: RowKind) -> str:
        """A topic that holds these rows, most of them only in the remote tier."""
        name = self.empty_topic(kind.partitions, TIERED)
        note(f"producing {kind.count:,} rows of {kind.value_size} bytes, and moving them")
        rows.produce(kind, name, self._broker.address)
        with control.connect(self._broker.address) as cluster:
            await_tier(cluster, name, kind)
        return name

    def diskless_topic(self, kind: RowKind) -> str:
        """A topic that holds these rows in objects that many partitions share."""
        name = self.empty_topic(kind.partitions, DISKLESS)
        note(f"producing {kind.count:,} rows of {kind.value_size} bytes to a diskless topic")
        rows.produce(kind, name, self._broker.address)
        return name

    def empty_topic(self, partitions: int = 2, settings: Mapping[str, str] = KEPT) -> str:
        """A new topic; it is deleted after the run."""
        name = f"{self.folder.name}-{len(self._topics)}"
        with control.connect(self._broker.address) as cluster:
            control.create_led_topic(cluster, name, partitions, settings)
        self._topics.append(name)
        return name

    def with_node(self, way: Way) -> Way:
        """The same way, with the node's CPU counted too, if its process is known."""
        pid = self._broker.pid
        if pid is None:
            return way

        def counted() -> Measured:
            before = cost_of(pid).cpu_seconds
            found = way()
            assert found.server_cpu_seconds is not None
            return replace(found, server_cpu_seconds=(
                found.server_cpu_seconds + cost_of(pid).cpu_seconds - before))

        return counted

    def create(self, text: str) -> None:
        """Run a statement of SQL."""
        self.pipeline.execute(text)

    def _delete_topics(self) -> None:
        with control.connect(self._broker.address) as cluster:
            for name in self._topics:
                delete_topic(cluster, name)


def measure(bench: SqlBench, wanted: Sequence[str]) -> SqlReport:
    """Measure some parts."""
    found = [part for name in wanted for part in _PARTS[name](bench)]
    return SqlReport(load={"bootstrap": bench.bootstrap, **asdict(bench.load)}, parts=found)


def raw(bench: SqlBench) -> list[SqlPart]:
    """Records with all Kafka columns, small ones and large ones."""
    return [_raw(bench, size) for size in (SMALL, LARGE)]


def _raw(bench: SqlBench, size: int) -> SqlPart:
    count = bench.load.rows if size == SMALL else max(1, bench.load.rows // LARGE_SHARE)
    kind = RowKind(count=count, value_size=size, keys=bench.load.keys)
    topic = bench.topic(kind)
    folder = bench.folder / f"parquet-{size}"
    loads.write_parquet(folder, topic, kind)
    ways = in_turns(f"raw, {size} B", bench.load.rounds, {
        "quipu": lambda: loads.raw(bench.spark, bench.bootstrap, topic, kind),
        "Parquet": lambda: loads.parquet(bench.spark, folder, kind),
        "ready": lambda: loads.ready(bench.spark, kind),
        "consumer": lambda: loads.consumer(bench.bootstrap, topic, kind),
    })
    part = SqlPart(f"raw, {size} B", ways)
    part.compare("quipu", "Parquet", number="P12", aim=P12_AIMS[size])
    part.compare("quipu", "ready").compare("ready", "Parquet")
    return part.compare("quipu", "consumer")


def direct(bench: SqlBench) -> list[SqlPart]:
    """Records that are only in the remote tier, from its objects and through the broker.

    The broker then reads them from the objects.  For comparison, the same rows of a topic that the
    broker has itself, and a data source whose rows are ready, the limit of all.  CPU is that of
    Spark and of the node, which share the cores.
    """
    return [_direct(bench, size) for size in (SMALL, LARGE)]


def _direct(bench: SqlBench, size: int) -> SqlPart:
    count = bench.load.rows if size == SMALL else max(1, bench.load.rows // LARGE_SHARE)
    kind = RowKind(count=count, value_size=size, keys=bench.load.keys)
    topic, local = bench.tiered_topic(kind), bench.topic(kind)
    name = f"direct, {size} B"

    def way(topic: str, mode: str, **options: str) -> Way:
        return bench.with_node(lambda: loads.raw(
            bench.spark, bench.bootstrap, topic, kind, directRead=mode, **options))

    part = SqlPart(name, in_turns(name, bench.load.rounds, {
        "objects": way(topic, "always"), "broker": way(topic, "never"),
        "broker, local": way(local, "never"),
        "ready": bench.with_node(lambda: loads.ready(bench.spark, kind)),
        "objects, offsets only": way(topic, "always", columns="offset"),
        "broker, offsets only": way(topic, "never", columns="offset"),
    }))
    part.compare("objects", "broker", number="P13", aim=P13_AIM)
    part.compare("objects, offsets only", "broker, offsets only", number="P13", aim=P13_AIM)
    part.compare("objects", "broker, local").compare("ready", "broker")
    return part.compare("objects", "ready")


def diskless(bench: SqlBench) -> list[SqlPart]:
    """Records of a diskless topic, from its objects and through the broker, which caches them."""
    return [_diskless(bench, size) for size in (SMALL, LARGE)]


def _diskless(bench: SqlBench, size: int) -> SqlPart:
    count = bench.load.rows if size == SMALL else max(1, bench.load.rows // LARGE_SHARE)
    kind = RowKind(count=count, value_size=size, keys=bench.load.keys)
    topic, local = bench.diskless_topic(kind), bench.topic(kind)
    name = f"diskless, {size} B"

    def way(topic: str, mode: str) -> Way:
        return bench.with_node(lambda: loads.raw(
            bench.spark, bench.bootstrap, topic, kind, directRead=mode))

    part = SqlPart(name, in_turns(name, bench.load.rounds, {
        "objects": way(topic, "always"), "broker": way(topic, "never"),
        "broker, local": way(local, "never"),
        "ready": bench.with_node(lambda: loads.ready(bench.spark, kind)),
    }))
    part.compare("objects", "broker").compare("objects", "broker, local")
    return part.compare("objects", "ready")


def await_tier(cluster: Cluster, topic: str, kind: RowKind) -> None:
    """Wait until most rows of a topic are only in the remote tier."""
    await_moved(cluster, topic, int(TIER_SHARE * kind.count))


def json(bench: SqlBench) -> list[SqlPart]:
    """A source that decodes JSON, with and without metadata; and a source of bytes."""
    kind = RowKind(count=bench.load.rows, value_size=SMALL, keys=bench.load.keys)
    topic = bench.topic(kind)
    place = f"FROM KAFKA BROKER '{bench.bootstrap}' TOPIC '{topic}'"
    row = "(id bigint, amount bigint, text text)"
    bench.create(f"CREATE SOURCE bench_bytes {place} FORMAT BYTES")
    bench.create(f"CREATE SOURCE bench_json {row} {place} FORMAT JSON")
    bench.create(f"CREATE SOURCE bench_all {row} {place} KEY FORMAT TEXT VALUE FORMAT JSON "
                 f"INCLUDE {INCLUDED}")
    shown = bench.pipeline.columns("bench_bytes").names
    assert shown == ["data"], f"a source without INCLUDE shows {shown}"
    pipeline = bench.pipeline
    part = SqlPart("source, 100 B", in_turns("source, 100 B", bench.load.rounds, {
        "raw": lambda: loads.raw(bench.spark, bench.bootstrap, topic, kind),
        "values only": lambda: loads.values_only(bench.spark, bench.bootstrap, topic, kind),
        "bytes": lambda: loads.query(pipeline, "SELECT * FROM bench_bytes", kind),
        "JSON": lambda: loads.query(pipeline, "SELECT * FROM bench_json", kind),
        "JSON, all INCLUDE": lambda: loads.query(pipeline, "SELECT * FROM bench_all", kind),
    }))
    part.compare("bytes", "values only")  # I4: what is not included costs nothing
    part.compare("JSON", "raw")
    return [part.compare("JSON, all INCLUDE", "JSON")]


def upsert(bench: SqlBench) -> list[SqlPart]:
    """A materialized source in which a later row replaces the earlier one of its key."""
    keys = bench.load.keys
    count = max(bench.load.rows, keys + keys // UPDATED_SHARE)
    kind = RowKind(count=count, value_size=SMALL, keys=keys)
    topic = bench.topic(kind)
    statement = (f"CREATE MATERIALIZED SOURCE bench_upsert FROM KAFKA BROKER '{bench.bootstrap}' "
                 f"TOPIC '{topic}' KEY FORMAT TEXT VALUE FORMAT BYTES ENVELOPE UPSERT")
    name = f"upsert, {keys:,} keys"
    part = SqlPart(name, in_turns(name, bench.load.rounds, {
        "raw": lambda: loads.raw(bench.spark, bench.bootstrap, topic, kind),
        "upsert": lambda: loads.materialize(
            bench.pipeline, "bench_upsert", statement, kind),
    }))
    aim = next((aim for limit, aim in P14_AIMS if keys <= limit), None)
    return [part.compare("upsert", "raw", number="P14", aim=aim)]


def freshness(bench: SqlBench) -> list[SqlPart]:
    """The time from produce to visible in a view, at a fixed rate."""
    topic = bench.empty_topic()
    bench.create(
        f"CREATE MATERIALIZED SOURCE bench_fresh FROM KAFKA BROKER '{bench.bootstrap}' "
        f"TOPIC '{topic}' KEY FORMAT TEXT VALUE FORMAT BYTES INCLUDE TIMESTAMP AS produced_at "
        "ENVELOPE UPSERT")
    load = bench.load
    name = f"freshness, {load.rate:,} rows/s"
    found = in_turns(name, 1, {"upsert": lambda: loads.freshness(
        bench.pipeline, "bench_fresh", bench.bootstrap, topic, (load.rate, load.seconds))})
    return [SqlPart(name, found)]


def in_turns(name: str, rounds: int, ways: Mapping[str, Way]) -> dict[str, Rounds]:
    """Measure every way once to warm up, and then alternately, `rounds` times."""
    found = {way: Rounds() for way in ways}
    for number in range(rounds + 1):
        for way, run in ways.items():
            measured = run()
            if number:
                found[way].found.append(measured)
        note(f"{name}: {'warm' if number == 0 else f'round {number} of {rounds}'}")
    return found


_PARTS: Final[dict[str, Callable[[SqlBench], list[SqlPart]]]] = {
    "raw": raw, "direct": direct, "diskless": diskless, "json": json, "upsert": upsert,
    "freshness": freshness,
}

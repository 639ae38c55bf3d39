"""The parts of `quipu bench sql`: which ways are measured in turns, and what is compared."""

import contextlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

from pyspark.sql import SparkSession

from quipu.cli.bench import sql_data, sql_loads
from quipu.cli.bench.control import Control
from quipu.cli.bench.measured import Measured
from quipu.cli.bench.sql_data import RowKind
from quipu.cli.bench.sql_ready import ReadySource
from quipu.cli.bench.sql_report import Part, Rounds, SqlReport
from quipu.cli.bench.target import Target
from quipu.cli.output import tell
from quipu.pipeline.spark.pipeline import Pipeline, connect
from quipu.pipeline.spark.sources import register

SMALL: Final = 100
LARGE: Final = 1_000
LARGE_SHARE: Final = 4  # so many times fewer large rows
P12_AIMS: Final = {SMALL: 0.6, LARGE: 1.0}
KEPT: Final = {"retention.ms": "-1", "retention.bytes": "-1", "flush.ms": str(2**63 - 1)}

P14_AIMS: Final = ((1_000_000, 0.12), (10_000_000, 0.08))  # up to so many keys
UPDATED_SHARE: Final = 5  # at least one key in so many is updated
INCLUDED: Final = "KEY AS k, TIMESTAMP, OFFSET, PARTITION, TOPIC, HEADERS"
SETTINGS: Final = {"spark.driver.memory": "2g", "quipu.wait.ms": "600000"}

Way = Callable[[], Measured]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The command's options."""

    rows: int
    keys: int
    rounds: int
    rate: int
    seconds: float


class Stage:
    """A broker, a folder, and Spark, for as long as it is entered."""

    def __init__(
        self, broker: Target, load: Load, master: str | None = None,
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
        """A topic that holds these rows; made once."""
        if kind not in self._filled:
            name = self.empty_topic(kind.partitions)
            tell(f"producing {kind.count:,} rows of {kind.value_size} bytes")
            sql_data.produce(kind, name, self._broker.address)
            self._filled[kind] = name
        return self._filled[kind]

    def empty_topic(self, partitions: int = 2) -> str:
        """A new topic; it is gone after the run."""
        name = f"{self.folder.name}-{len(self._topics)}"
        with Control(self._broker.address) as control:
            control.create_topic(name, partitions, KEPT)
        self._topics.append(name)
        return name

    def create(self, text: str) -> None:
        """Carry out a statement."""
        self.pipeline.execute(text)

    def _delete_topics(self) -> None:
        with Control(self._broker.address) as control:
            for name in self._topics:
                control.delete_topic(name)


def measure(stage: Stage, wanted: Sequence[str]) -> SqlReport:
    """All parts that were asked for."""
    found = [part for name in wanted for part in _PARTS[name](stage)]
    return SqlReport(load={"bootstrap": stage.bootstrap, **asdict(stage.load)}, parts=found)


def raw(stage: Stage) -> list[Part]:
    """Records as they are, small ones and large ones."""
    return [_raw(stage, size) for size in (SMALL, LARGE)]


def _raw(stage: Stage, size: int) -> Part:
    count = stage.load.rows if size == SMALL else max(1, stage.load.rows // LARGE_SHARE)
    kind = RowKind(count=count, value_size=size, keys=stage.load.keys)
    topic = stage.topic(kind)
    folder = stage.folder / f"parquet-{size}"
    sql_loads.write_parquet(folder, topic, kind)
    ways = in_turns(f"raw, {size} B", stage.load.rounds, {
        "quipu": lambda: sql_loads.raw(stage.spark, stage.bootstrap, topic, kind),
        "Parquet": lambda: sql_loads.parquet(stage.spark, folder, kind),
        "ready": lambda: sql_loads.ready(stage.spark, kind),
        "consumer": lambda: sql_loads.consumer(stage.bootstrap, topic, kind),
    })
    part = Part(f"raw, {size} B", ways)
    part.compare("quipu", "Parquet", number="P12", aim=P12_AIMS[size])
    part.compare("quipu", "ready").compare("ready", "Parquet")
    return part.compare("quipu", "consumer")


def json(stage: Stage) -> list[Part]:
    """A source that decodes, with and without metadata; and one that shows bytes only."""
    kind = RowKind(count=stage.load.rows, value_size=SMALL, keys=stage.load.keys)
    topic = stage.topic(kind)
    place = f"FROM KAFKA BROKER '{stage.bootstrap}' TOPIC '{topic}'"
    row = "(id bigint, amount bigint, text text)"
    stage.create(f"CREATE SOURCE bench_bytes {place} FORMAT BYTES")
    stage.create(f"CREATE SOURCE bench_json {row} {place} FORMAT JSON")
    stage.create(f"CREATE SOURCE bench_all {row} {place} KEY FORMAT TEXT VALUE FORMAT JSON "
                 f"INCLUDE {INCLUDED}")
    shown = stage.pipeline.columns("bench_bytes").names
    assert shown == ["data"], f"a source without INCLUDE shows {shown}"
    pipeline = stage.pipeline
    part = Part("source, 100 B", in_turns("source, 100 B", stage.load.rounds, {
        "raw": lambda: sql_loads.raw(stage.spark, stage.bootstrap, topic, kind),
        "values only": lambda: sql_loads.values_only(stage.spark, stage.bootstrap, topic, kind),
        "bytes": lambda: sql_loads.query(pipeline, "SELECT * FROM bench_bytes", kind),
        "JSON": lambda: sql_loads.query(pipeline, "SELECT * FROM bench_json", kind),
        "JSON, all INCLUDE": lambda: sql_loads.query(pipeline, "SELECT * FROM bench_all", kind),
    }))
    part.compare("bytes", "values only")  # I4: what is not included costs nothing
    part.compare("JSON", "raw")
    return [part.compare("JSON, all INCLUDE", "JSON")]


def upsert(stage: Stage) -> list[Part]:
    """A materialized source in which later rows take the place of earlier ones."""
    keys = stage.load.keys
    count = max(stage.load.rows, keys + keys // UPDATED_SHARE)
    kind = RowKind(count=count, value_size=SMALL, keys=keys)
    topic = stage.topic(kind)
    statement = (f"CREATE MATERIALIZED SOURCE bench_upsert FROM KAFKA BROKER '{stage.bootstrap}' "
                 f"TOPIC '{topic}' KEY FORMAT TEXT VALUE FORMAT BYTES ENVELOPE UPSERT")
    name = f"upsert, {keys:,} keys"
    part = Part(name, in_turns(name, stage.load.rounds, {
        "raw": lambda: sql_loads.raw(stage.spark, stage.bootstrap, topic, kind),
        "upsert": lambda: sql_loads.materialize(
            stage.pipeline, "bench_upsert", statement, kind),
    }))
    aim = next((aim for limit, aim in P14_AIMS if keys <= limit), None)
    return [part.compare("upsert", "raw", number="P14", aim=aim)]


def freshness(stage: Stage) -> list[Part]:
    """From produce to visible, at a fixed rate."""
    topic = stage.empty_topic()
    stage.create(
        f"CREATE MATERIALIZED SOURCE bench_fresh FROM KAFKA BROKER '{stage.bootstrap}' "
        f"TOPIC '{topic}' KEY FORMAT TEXT VALUE FORMAT BYTES INCLUDE TIMESTAMP AS produced_at "
        "ENVELOPE UPSERT")
    load = stage.load
    name = f"freshness, {load.rate:,} rows/s"
    found = in_turns(name, 1, {"upsert": lambda: sql_loads.freshness(
        stage.pipeline, "bench_fresh", stage.bootstrap, topic, (load.rate, load.seconds))})
    return [Part(name, found)]


def in_turns(name: str, rounds: int, ways: Mapping[str, Way]) -> dict[str, Rounds]:
    """Every way once to warm up, and then in turns."""
    found = {way: Rounds() for way in ways}
    for number in range(rounds + 1):
        for way, run in ways.items():
            measured = run()
            if number:
                found[way].found.append(measured)
        tell(f"{name}: {'warm' if number == 0 else f'round {number} of {rounds}'}")
    return found


_PARTS: Final[dict[str, Callable[[Stage], list[Part]]]] = {
    "raw": raw, "json": json, "upsert": upsert, "freshness": freshness,
}

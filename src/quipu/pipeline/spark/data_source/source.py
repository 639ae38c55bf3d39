"""`format("quipu")`: topics as Spark's Kafka source shows them, from Quipu or any Kafka broker.

    spark.read.format("quipu").option("kafka.bootstrap.servers", b).option("subscribe", "orders")
    spark.readStream.format("quipu")...           # exactly once, by Spark's checkpoint
    df.write.format("quipu").option("topic", "orders").mode("append").save()     (see writer.py)

Options are in `pipeline.reading.options`, the offsets of a stream in `pipeline.reading.stream`.
Spark does not pass the columns that a query needs to data sources in Python; a query that needs few
names them by the option `columns`, or by a schema: `.schema("value binary, offset bigint")`.

The driver has one process per stream, which holds the `Stream` and requests offsets from brokers.
Each task reads ranges (`pipeline.reading.loop`) in a worker that is reused, and keeps its
connections.

Invariants
    pipeline.D1  readers are pickled and sent to other processes, so they contain only options: each
                 process makes its own `Stream` and connections
"""

import logging
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from quipu.client.commit import commit
from quipu.client.errors import ClientError, DataLost
from quipu.client.shared import shared
from quipu.pipeline.reading.loop import read_ranges
from quipu.pipeline.reading.options import (
    ReadOptions,
    batch_options,
    columns_option,
    stream_options,
)
from quipu.pipeline.reading.positions import Json, Reached, to_json
from quipu.pipeline.reading.ranges import Task
from quipu.pipeline.reading.stream import Pace, Stream, on_loss, snapshot
from quipu.pipeline.spark.data_source.columns import batches, columns_of, schema_of, wanted_of
from quipu.pipeline.spark.data_source.writer import (
    BatchTopicWriter,
    StreamTopicWriter,
    write_options,
)

NAME = "quipu"

_log = logging.getLogger(__name__)


class TaskPartition(InputPartition):
    """The partition of Spark for one task: the ranges that the task reads."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.task = task


class QuipuDataSource(DataSource):
    """The data source `quipu`: makes readers and writers from options."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return schema_of(columns_option(self._given))

    def reader(self, schema: StructType) -> DataSourceReader:
        return RawReader(batch_options(self._given), columns_of(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return RawStreamReader(stream_options(self._given), columns_of(schema))

    def writer(
        self, schema: StructType, overwrite: bool,  # noqa: FBT001 Spark calls it by position
    ) -> DataSourceArrowWriter:
        return BatchTopicWriter(write_options(self._given, schema, overwrite=overwrite))

    def streamWriter(
        self, schema: StructType, overwrite: bool,  # noqa: FBT001 Spark calls it by position
    ) -> DataSourceStreamArrowWriter:
        del overwrite  # set by the output mode; a topic is always appended to
        return StreamTopicWriter(write_options(self._given, schema, overwrite=False))

    @property
    def _given(self) -> Mapping[str, str]:
        return dict(self.options)


class RawReader(DataSourceReader):
    """A batch read: the records that topics have when the query starts."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        tasks = snapshot(shared(self._options.client), self._options, cores(), warn_of_loss)
        return [TaskPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition, self._options, self._columns)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets and tasks of a stream of a topic; subclasses read the tasks."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._made: Stream | None = None  # only in the driver's process, never pickled

    def initialOffset(self) -> dict[str, object]:
        return self._stream.initial().to_json()

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:
        pace = Pace.ALL if isinstance(limit, ReadAllAvailable) else Pace.LIMITED
        return self._stream.latest(Reached.from_json(start), pace).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        limits = self._options.limits
        if limits.offsets_max is not None:
            return ReadMaxRows(limits.offsets_max)
        if limits.offsets_min is not None:
            return ReadMinRows(limits.offsets_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._stream.prepare()

    def reportLatestOffset(self) -> Json | None:
        newest = self._stream.newest()
        return None if newest is None else to_json(newest)

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> list[InputPartition]:
        return [TaskPartition(task) for task in self._stream.tasks(
            Reached.from_json(start), Reached.from_json(end))]

    def commit(self, end: dict[str, object]) -> None:
        """Commit offsets to the group, if there is one, for tools that monitor its lag."""
        group = self._options.client.group_id
        if group is None:
            return
        try:
            commit(shared(self._options.client), group, Reached.from_json(end).positions)
        except ClientError as error:  # no failure: the stream continues from Spark's checkpoint
            _log.warning("offsets of group %s were not committed: %s", group, error)

    def stop(self) -> None:
        if self._made is not None:
            shared(self._options.client).close()

    @property
    def _stream(self) -> Stream:
        if self._made is None:
            self._made = Stream(
                shared(self._options.client), self._options, time.monotonic, warn=warn_of_loss,
                cores=cores())
        return self._made

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}  # pipeline.D1


class RawStreamReader(StreamReader):
    """A stream of records, with their columns as Spark's Kafka source has them."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        super().__init__(options)
        self._columns = columns

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition, self._options, self._columns)


def read_task(
    partition: InputPartition, options: ReadOptions, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """The records of one task; Spark passes a plain InputPartition if there are no tasks."""
    if not isinstance(partition, TaskPartition):
        return iter(())
    reads = read_ranges(options.client, partition.task, wanted_of(columns),
                        on_loss=on_loss(options, warn_of_loss), direct=options.direct_read)
    return batches(reads, columns)


def warn_of_loss(loss: DataLost) -> None:
    """Log that data was lost, if failOnDataLoss is false."""
    _log.warning("%s; failOnDataLoss=false: continuing without them", loss)


def cores() -> int:
    """The number of tasks of a batch without tasksPerBatch: one for each core of the driver."""
    return len(os.sched_getaffinity(0))

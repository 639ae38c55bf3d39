"""Runs the tasks of a batch of a view on executors.

The tasks of a large batch read and pack (`views/read_task.py`), and their parcels are shuffled to
the tasks of their buckets, which merge them (`views/merge_task.py`).  A small batch is read and
merged by one task, because a second round of tasks would take longer (ADR 15).  The driver gets
only a few small rows.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from quipu.pipeline.execution.task_rows import COLUMNS, SCHEMA, TaskRow, from_batches, to_batches
from quipu.pipeline.spark.queries.relations import from_tasks
from quipu.pipeline.spark.session import jobs
from quipu.pipeline.views.inputs import TaskInput, ViewInputs
from quipu.pipeline.views.merge_task import (
    MergeBucket,
    Tables,
    merge_parcels,
    merge_task,
    read_and_merge,
)
from quipu.pipeline.views.read_task import read_task

SMALL = 50_000  # messages: at most this many are read and merged by one task

ArrowTask = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def run_tasks(
    spark: SparkSession, inputs: ViewInputs, tasks: Sequence[TaskInput], tables: Tables, *,
    version: int, cores: int, small: bool,
) -> list[TaskRow]:
    """Read a batch and merge it into the tables that lack it; returns the tasks' rows."""
    if tables and not small and cores > 1:
        frame = from_tasks(spark, SCHEMA, [partial(_read, inputs, each) for each in tasks])
        return collected(shuffled(frame, cores).mapInArrow(merging(tables, version), COLUMNS))
    groups = [tasks] if tables and tasks else [[each] for each in tasks]
    return jobs.run(spark, [partial(read_and_merge, inputs, each, tables, version)
                            for each in groups])


def _read(inputs: ViewInputs, given: TaskInput) -> Iterator[pa.RecordBatch]:
    return to_batches(read_task(inputs, given))


def merging(tables: Tables, version: int, merge: MergeBucket = merge_parcels) -> ArrowTask:
    """A task that gets all task rows of its buckets, and merges the parcels among them."""
    return lambda batches: to_batches(merge_task(from_batches(batches), tables, version, merge))


def shuffled(frame: DataFrame, tasks: int) -> DataFrame:
    """Task rows, shuffled to this number of tasks so that all rows of a bucket are in one."""
    return frame.repartitionById(tasks, task_of_bucket(tasks))


def task_of_bucket(tasks: int) -> Column:
    """The number of the task for a bucket; neighbouring buckets are in different tasks."""
    return f.pmod(f.col("source") * 7 + f.col("bucket"), f.lit(tasks))


def collected(frame: DataFrame) -> list[TaskRow]:
    """The task rows of a DataFrame, in the driver."""
    return list(from_batches(frame.toArrow().to_batches()))

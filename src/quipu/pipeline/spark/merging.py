"""A batch of a view's stream into the view's tables: what executors do, and what comes back.

    merged(spark, reads, tables, version, cores=…, small=…)

`reads` say what there is to read, each in a task (`feed_tasks`).  Parcels go to the tasks of their
buckets and are merged there; of a small batch, by the task that has read them, because a second
round of tasks takes longer than that.  The rest comes back as it is: it is few and small.

Tasks write files that nobody knows before the driver commits (`tables/store.py`), so they can be
tried again, or in vain.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from quipu.pipeline.spark import jobs
from quipu.pipeline.spark.relations import from_tasks
from quipu.pipeline.spark.tasks import (
    COLUMNS,
    SCHEMA,
    Item,
    Kind,
    from_batches,
    json_item,
    to_batches,
)
from quipu.pipeline.tables.commits import TableAt
from quipu.pipeline.tables.contract import BucketState
from quipu.pipeline.tables.store import merge_bucket

SMALL = 50_000  # messages: so few are read and merged by one task

Read = Callable[[], Iterable[Item]]
Merge = Callable[[TableAt, int, Iterable[bytes], int], BucketState]


def merged(
    spark: SparkSession, reads: Sequence[Read], tables: Mapping[int, TableAt], version: int, *,
    cores: int, small: bool,
) -> list[Item]:
    """Merge a batch into the tables that do not have it; what the driver has to know."""
    if tables and not small and cores > 1:
        frame = from_tasks(spark, SCHEMA, [partial(_as_batches, read) for read in reads])
        shared = frame.repartitionById(cores, partition_of(cores))
        return collected(shared.mapInArrow(merging(tables, version), COLUMNS))
    tasks = [reads] if tables and reads else [[read] for read in reads]
    return jobs.run(spark, [partial(_read_and_merge, each, tables, version) for each in tasks])


def _as_batches(read: Read) -> Iterator[pa.RecordBatch]:
    return to_batches(read())


def _read_and_merge(
    reads: Sequence[Read], tables: Mapping[int, TableAt], version: int,
) -> Iterator[Item]:
    return _merge(chain.from_iterable(read() for read in reads), tables, version)


def partition_of(cores: int) -> Column:
    """Which task has which bucket: neighbours are not in one."""
    return f.pmod(f.col("source") * 7 + f.col("bucket"), f.lit(cores))


def collected(frame: DataFrame) -> list[Item]:
    """What tasks tell the driver."""
    return list(from_batches(frame.toArrow().to_batches()))


def merge_parcels(
    base: TableAt, bucket: int, parcels: Iterable[bytes], version: int,
) -> BucketState:
    """Events as they are, into a bucket."""
    state = base.manifest.bucket(bucket)
    return merge_bucket(base.directory, base.shape, state, parcels, version)


def merging(
    tables: Mapping[int, TableAt], version: int, merge: Merge = merge_parcels,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What one task does: it gets all parcels of its buckets."""
    return lambda batches: to_batches(_merge(from_batches(batches), tables, version, merge))


def _merge(
    items: Iterable[Item], tables: Mapping[int, TableAt], version: int,
    merge: Merge = merge_parcels,
) -> Iterator[Item]:
    parcels: dict[tuple[int, int], list[bytes]] = {}
    for item in items:
        if item.kind is not Kind.PARCEL:
            yield item
        elif item.source in tables:  # else this batch is committed there already
            parcels.setdefault((item.source, item.bucket), []).append(item.data)
    for source, bucket in sorted(parcels):
        state = merge(tables[source], bucket, parcels.pop((source, bucket)), version)
        yield json_item(source, bucket, Kind.STATE, state.to_json())

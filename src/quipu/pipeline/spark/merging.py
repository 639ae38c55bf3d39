"""A batch of a view's stream into the view's tables: what executors do, and what comes back.

    merged(frame, tables, version, cores)     parcels to the tasks of their buckets, merged there;
                                              the rest as it is: few and small

Tasks write files that nobody knows before the driver commits (`tables/store.py`), so they can be
tried again, or in vain.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from quipu.pipeline.spark.tasks import COLUMNS, Item, Kind, from_batches, json_item, to_batches
from quipu.pipeline.tables.commits import Manifest
from quipu.pipeline.tables.contract import TableShape
from quipu.pipeline.tables.store import merge_bucket

SMALL = 50_000  # messages; so few are read and merged by one task, without a shuffle


class TableAt(NamedTuple):
    """A table, in the version that a batch builds on."""

    directory: Path
    shape: TableShape
    manifest: Manifest


def merged(
    frame: DataFrame, tables: Mapping[int, TableAt], version: int, *, cores: int, messages: int,
) -> list[Item]:
    """Merge a batch into the tables that do not have it; what the driver has to know."""
    if not tables:
        return collected(frame.where(f.col("kind") != int(Kind.PARCEL)))
    if cores == 1 or messages <= SMALL:
        together = frame.coalesce(1)
    else:
        together = frame.repartitionById(cores, partition_of(cores))
    return collected(together.mapInArrow(merging(tables, version), COLUMNS))


def partition_of(cores: int) -> Column:
    """Which task has which bucket: neighbours are not in one."""
    return f.pmod(f.col("source") * 7 + f.col("bucket"), f.lit(cores))


def collected(frame: DataFrame) -> list[Item]:
    """What tasks tell the driver."""
    return list(from_batches(frame.toArrow().to_batches()))


def merging(
    tables: Mapping[int, TableAt], version: int,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What one task does: it gets all parcels of its buckets."""
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parcels: dict[tuple[int, int], list[bytes]] = {}
        for item in from_batches(batches):
            if item.kind is Kind.PARCEL:
                if item.source not in tables:
                    continue  # this batch is committed there already
                parcels.setdefault((item.source, item.bucket), []).append(item.data)
            else:
                yield from to_batches([item])
        for source, bucket in sorted(parcels):
            base = tables[source]
            state = merge_bucket(base.directory, base.shape, base.manifest.bucket(bucket),
                                 parcels.pop((source, bucket)), version)
            yield from to_batches([json_item(source, bucket, Kind.STATE, state.to_json())])

    return run

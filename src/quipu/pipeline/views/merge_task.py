"""The merge side of a batch, in one call: parcels of events merged into the buckets of tables.

    merge_task(rows, tables, version)              rows of `read_task`, all of some buckets
    read_and_merge(inputs, tasks, tables, version) both sides in one task, for a small batch

The files that a task writes count only once the driver has committed them (`tables/store.py`), so a
task can be tried again, or in vain.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from quipu.pipeline.execution.task_rows import TaskRow, TaskRowKind, json_row
from quipu.pipeline.tables.commits import TableAt
from quipu.pipeline.tables.contract import BucketState
from quipu.pipeline.tables.store import merge_bucket
from quipu.pipeline.views.inputs import TaskInput, ViewInputs
from quipu.pipeline.views.read_task import read_task

Tables = Mapping[int, TableAt]  # by the number of the source: those that do not have the batch yet
MergeBucket = Callable[[TableAt, int, Iterable[bytes], int], BucketState]


def merge_parcels(
    base: TableAt, bucket: int, parcels: Iterable[bytes], version: int,
) -> BucketState:
    """Merge parcels of events into a bucket of a table; the bucket's new state."""
    state = base.manifest.bucket(bucket)
    return merge_bucket(base.directory, base.shape, state, parcels, version)


def merge_task(
    rows: Iterable[TaskRow], tables: Tables, version: int, merge: MergeBucket = merge_parcels,
) -> Iterator[TaskRow]:
    """Merge the parcels among some rows, and hand on the other rows as they are.

    Parcels for a table that is not in `tables` are dropped: it has this batch already.
    """
    parcels: dict[tuple[int, int], list[bytes]] = {}
    for row in rows:
        if row.kind is not TaskRowKind.PARCEL:
            yield row
        elif row.source in tables:
            parcels.setdefault((row.source, row.bucket), []).append(row.data)
    for source, bucket in sorted(parcels):
        assert 0 <= bucket < tables[source].shape.buckets, (source, bucket)
        state = merge(tables[source], bucket, parcels.pop((source, bucket)), version)
        assert (state.bucket, state.version) == (bucket, version), state
        yield json_row(source, bucket, TaskRowKind.BUCKET_STATE, state.to_json())


def read_and_merge(
    inputs: ViewInputs, tasks: Sequence[TaskInput], tables: Tables, version: int,
) -> Iterator[TaskRow]:
    """Read some messages, and merge them in the same task."""
    rows = chain.from_iterable(read_task(inputs, each) for each in tasks)
    return merge_task(rows, tables, version)

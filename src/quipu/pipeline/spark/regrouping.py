"""A small change added to a table by group, by one task, in Arrow.

Spark would shuffle a few rows five times over; a change of a few thousand groups fits in one hand.
`can_regroup` says for which tables this gives what Spark's own functions give: not for floats,
where NaN is compared otherwise.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from quipu.pipeline.envelopes.fingerprints import buckets_of
from quipu.pipeline.envelopes.identity import encode_rows
from quipu.pipeline.spark.aggregates import Aggregation, Grouped, group_events
from quipu.pipeline.spark.merging import TableAt
from quipu.pipeline.spark.tasks import Kind, json_item, to_batches
from quipu.pipeline.tables.reading import rows
from quipu.pipeline.tables.store import merge_events

_IDENTITY = "#identity"
_PLACE = "#place"
_SUM = pa.decimal128(38, 0)  # of whole numbers: one that is too large is an error


def can_regroup(grouped: Grouped) -> bool:
    """Does Arrow combine the parts of these groups as Spark does?"""
    return all(_is_plain(grouped.schema.field(part.name).type)
               for part in grouped.aggregation.parts)


def _is_plain(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_string(kind)
                or pa.types.is_binary(kind) or pa.types.is_temporal(kind)
                or pa.types.is_boolean(kind))


def regrouped(
    base: TableAt, grouped: Grouped, delta: pa.Table, version: int,
) -> Iterator[pa.RecordBatch]:
    """What one task does: all buckets that a change is about, merged."""
    aggregation = grouped.aggregation
    delta = _identified(delta.cast(grouped.schema).combine_chunks(), aggregation)
    identities = delta.column(_IDENTITY).combine_chunks()
    buckets = pa.array(buckets_of(identities, base.shape.buckets))
    events = group_events(aggregation)
    for bucket in sorted(pc.unique(buckets).to_pylist()):
        share = delta.filter(pc.equal(buckets, bucket))
        state = base.manifest.bucket(bucket)
        old = [_about(batch, aggregation, share) for batch in rows(
            base.directory, base.shape, state, grouped.schema.names)]
        new = _combined(pa.concat_tables([*old, share]), grouped)
        made = [events(base.shape.events, batch) for batch in new.to_batches()]
        merged = merge_events(base.directory, base.shape, state,
                              pa.Table.from_batches(made, base.shape.events.schema), version)
        yield from to_batches([json_item(0, bucket, Kind.STATE, merged.to_json())])


def _identified(table: pa.Table, aggregation: Aggregation) -> pa.Table:
    """Groups with the bytes that tell them apart."""
    columns = [table.column(name).combine_chunks() for name in aggregation.groups]
    identities = encode_rows(columns) if columns else pa.array([b""] * len(table), pa.binary())
    return table.append_column(_IDENTITY, identities)


def _about(batch: pa.RecordBatch, aggregation: Aggregation, share: pa.Table) -> pa.Table:
    """Those of the groups that a change is about."""
    table = _identified(pa.Table.from_batches([batch]), aggregation)
    wanted = share.column(_IDENTITY).combine_chunks()
    return table.filter(pc.is_in(table.column(_IDENTITY), wanted))


def _combined(table: pa.Table, grouped: Grouped) -> pa.Table:
    """One row for each group."""
    aggregation = grouped.aggregation
    schema = grouped.schema
    numbered = table.append_column(_PLACE, pa.array(range(len(table)), pa.int64()))
    for part in aggregation.parts:
        if part.combine == "sum" and pa.types.is_integer(schema.field(part.name).type):
            place = numbered.schema.get_field_index(part.name)
            numbered = numbered.set_column(place, part.name, numbered.column(place).cast(_SUM))
    found = numbered.group_by(_IDENTITY).aggregate([
        (_PLACE, "min"), *((part.name, part.combine) for part in aggregation.parts)])
    first = table.take(found.column(f"{_PLACE}_min"))
    columns = [first.column(name) for name in aggregation.groups]
    columns += [found.column(f"{part.name}_{part.combine}") for part in aggregation.parts]
    names = [*aggregation.groups, *(part.name for part in aggregation.parts)]
    return pa.table(columns, names=names).select(schema.names).cast(schema)

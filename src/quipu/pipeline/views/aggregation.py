"""A query with GROUP BY taken apart, as plain data: what is kept by group, and what is shown of it.

    SELECT day, count(*) AS n, sum(price) AS total FROM orders GROUP BY day

is kept as a table by group, of partial aggregates that add up exactly (counts, sums of whole
numbers and decimals; of sources without keys also least and greatest values):

    #g0 = day     #rows = count(*)     #a0 = count(*)     #a1 = sum(price)    #n1 = count(price)

A change of the source is aggregated on its own, what came and what went, and added to the groups
that it is about (`group_merge.py`); a group without rows is deleted.  The view is that table
through an expression for each column: `CASE WHEN #n1 > 0 THEN #a1 END AS total`.

Not here: which queries can be taken apart (`spark/queries/aggregates.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from quipu.pipeline.envelopes.events import EventShape, Keeping
from quipu.pipeline.sql.query_names import quoted

ToEvents = Callable[[EventShape, pa.RecordBatch], pa.RecordBatch]

ROWS = "#rows"


@dataclass(frozen=True)
class PartialAggregate:
    """A column of the table by group, and how two values of it become one."""

    name: str
    text: str  # how it is computed, in SQL
    combine: str = "sum"  # or min, max


@dataclass(frozen=True)
class FinalColumn:
    """A column of the view: a column of the table by group, or what follows from two of them."""

    name: str
    whole: str
    known: str | None = None  # where this column is zero, the value is NULL
    is_mean: bool = False  # the value is `whole` divided by `known`

    @property
    def text(self) -> str:
        """The column as an expression in SQL."""
        if self.known is None:
            return quoted(self.whole)
        value = f"double({quoted(self.whole)}) / {quoted(self.known)}"
        return (f"CASE WHEN {quoted(self.known)} > 0 "
                f"THEN {value if self.is_mean else quoted(self.whole)} END")

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """The same values, computed from a batch of the table by group."""
        whole = batch.column(self.whole)
        if self.known is None:
            return whole
        known = batch.column(self.known)
        if self.is_mean:
            whole = pc.divide(*(each.cast(pa.float64(), safe=False) for each in (whole, known)))
        return pc.if_else(pc.greater(known, 0), whole, pa.scalar(None, whole.type))


@dataclass(frozen=True)
class Aggregation:
    """A query with GROUP BY, taken apart."""

    query: str  # computes groups and partial aggregates
    groups: tuple[str, ...]
    partials: tuple[PartialAggregate, ...]
    columns: tuple[FinalColumn, ...]  # the view's columns

    @property
    def takes_back(self) -> bool:
        """Can rows be taken back, because every partial aggregate is a sum?"""
        return all(partial.combine == "sum" for partial in self.partials)


@dataclass(frozen=True)
class GroupedQuery:
    """An aggregation, and the columns of the table that it is kept in."""

    aggregation: Aggregation
    schema: pa.Schema
    is_product: bool  # whether what is aggregated is a join


def group_shape(schema: pa.Schema) -> EventShape:
    """The shape of the events of a table by group."""
    return EventShape(keeping=Keeping.LATEST, row=schema)

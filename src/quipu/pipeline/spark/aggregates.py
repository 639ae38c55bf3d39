"""Aggregates that can be kept up to date by what has changed, without a look at all the rows.

    SELECT day, count(*) AS n, sum(price) AS total FROM orders GROUP BY day

is kept as a table by group, of parts that add up exactly (counts, sums of whole numbers and
decimals; of sources that only grow also least and greatest values):

    #g0 = day     #rows = count(*)     #a0 = count(*)     #a1 = sum(price)    #n1 = count(price)

A change of the source is aggregated on its own, what came and what went, and added to the groups
that it is about (`regrouping.py`); a group without rows goes.  The view is that table through an
expression for each column: `CASE WHEN #n1 > 0 THEN #a1 END AS total`.  `aggregation_of` says None
for everything that it is not sure of: sums of floats, DISTINCT, HAVING and the like are computed
anew.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from quipu.pipeline.envelopes.events import EventShape, Keeping
from quipu.pipeline.spark.analysis import quoted
from quipu.pipeline.spark.relations import nullable
from quipu.pipeline.spark.trees import class_of, items_of
from quipu.pipeline.sql.lexer import Token, split

ToEvents = Callable[[EventShape, pa.RecordBatch], pa.RecordBatch]

ROWS = "#rows"
_EXACT = ("tinyint", "smallint", "int", "bigint", "decimal")
_WHOLE = _EXACT[:4]
_ORDERED = (*_EXACT, "float", "double", "string", "binary", "date", "timestamp", "boolean")


@dataclass(frozen=True)
class Part:
    """A column of the table by group, and how two values of it become one."""

    name: str
    text: str  # how it is computed, in SQL
    combine: str = "sum"  # or min, max


@dataclass(frozen=True)
class Shown:
    """A column of the view: a column of the table by group, or what follows from two of them."""

    name: str
    whole: str
    known: str | None = None  # where this is zero, there is no value
    is_mean: bool = False  # whole by known

    @property
    def text(self) -> str:
        """In SQL."""
        if self.known is None:
            return quoted(self.whole)
        value = f"double({quoted(self.whole)}) / {quoted(self.known)}"
        return (f"CASE WHEN {quoted(self.known)} > 0 "
                f"THEN {value if self.is_mean else quoted(self.whole)} END")

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """In Arrow: the same values."""
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

    query: str  # gives groups and parts
    groups: tuple[str, ...]
    parts: tuple[Part, ...]
    items: tuple[Shown, ...]  # the view's columns

    @property
    def takes_back(self) -> bool:
        """Can rows go as well as come?"""
        return all(part.combine == "sum" for part in self.parts)


@dataclass(frozen=True)
class Grouped:
    """An aggregation, and the table that it is kept in."""

    aggregation: Aggregation
    state: StructType
    is_product: bool  # whether what is aggregated is a join

    @cached_property
    def schema(self) -> pa.Schema:
        """The table's columns."""
        return nullable(to_arrow_schema(self.state, timezone="UTC"))


def aggregation_of(
    plan: Any, query: str, *, only_grows: bool,  # noqa: ANN401 the JVM's objects have no types
) -> Aggregation | None:
    """The query taken apart; None if it is not known to add up.  `plan` is Spark's, analyzed."""
    clauses = _clauses(query)
    if str(plan.nodeName()) != "Aggregate" or clauses is None:
        return None
    grouping = items_of(plan.groupingExpressions())
    groups = tuple(f"#g{number}" for number in range(len(grouping)))
    parts = [Part(ROWS, "count(*)")]
    items = []
    for number, named in enumerate(items_of(plan.aggregateExpressions())):
        inner = named.child() if class_of(named) == "Alias" else named
        if class_of(inner) == "AggregateExpression":
            found = _function(inner, number, str(named.name()), only_grows=only_grows)
            if found is None:
                return None
            parts += found[0]
            items.append(found[1])
            continue
        same = [group for group, each in zip(groups, grouping, strict=True)
                if inner.semanticEquals(each)]
        if not same:
            return None
        items.append(Shown(str(named.name()), same[0]))
    written = [f"{each.sql()} AS {quoted(group)}"
               for group, each in zip(groups, grouping, strict=True)]
    written += [f"{part.text} AS {quoted(part.name)}" for part in parts]
    text = f"SELECT {', '.join(written)} {clauses}"
    if grouping:
        text += f" GROUP BY {', '.join(str(each.sql()) for each in grouping)}"
    return Aggregation(text, groups, tuple(parts), tuple(items))


def _function(
    call: Any, number: int, name: str, *, only_grows: bool,  # noqa: ANN401
) -> tuple[list[Part], Shown] | None:
    """The parts of an aggregate function, and how its value follows from them."""
    function = call.aggregateFunction()
    if call.isDistinct() or call.filter().isDefined():
        return None
    arguments = items_of(function.children())
    text = ", ".join(str(each.sql()) for each in arguments)
    kind = str(arguments[0].dataType().simpleString())
    whole, known = f"#a{number}", f"#n{number}"
    count = Part(known, f"count({text})")
    match class_of(function):
        case "Count":
            return [Part(whole, f"count({text})")], Shown(name, whole)
        case "Sum" if kind.startswith(_EXACT):
            result = function.dataType().simpleString()
            total = Part(whole, f"CAST(coalesce(sum({text}), 0) AS {result})")
            return [total, count], Shown(name, whole, known)
        case "Average" if kind in _WHOLE:
            total = Part(whole, f"CAST(coalesce(sum({text}), 0) AS bigint)")
            return [total, count], Shown(name, whole, known, is_mean=True)
        case "Min" | "Max" as least if only_grows and kind.startswith(_ORDERED):
            return [Part(whole, f"{least}({text})", least.lower())], Shown(name, whole)
        case _:
            return None


def _clauses(query: str) -> str | None:
    """FROM and WHERE of a query that is SELECT … FROM … [WHERE …] [GROUP BY …]; else None."""
    pieces = split(query)
    if len(pieces) != 1 or not pieces[0].tokens[0].is_word("SELECT"):
        return None
    top = list(_at_the_top(pieces[0].tokens))
    starts = [token for before, token in pairwise(top)
              if token.is_word("FROM") and not before.is_word("DISTINCT")]
    if len(starts) != 1:
        return None
    ends = [token for token in top if token.is_word("GROUP")] or [pieces[0].tokens[-1]]
    return query[starts[0].span.start:ends[0].span.start]


def _at_the_top(tokens: Sequence[Token]) -> Iterator[Token]:
    depth = 0
    for token in tokens:
        depth -= token.is_symbol(")")
        if depth == 0:
            yield token
        depth += token.is_symbol("(")


# -- the table by group


def group_shape(schema: pa.Schema) -> EventShape:
    """The events of a table by group."""
    return EventShape(keeping=Keeping.LATEST, row=schema)


def taken_back(frame: DataFrame, aggregation: Aggregation) -> DataFrame:
    """What rows that went make of the parts."""
    return frame.select(
        *(f.col(quoted(name)) for name in aggregation.groups),
        *((-f.col(quoted(part.name))).alias(part.name) for part in aggregation.parts))


def shown_groups(frame: DataFrame, grouped: Grouped) -> DataFrame:
    """The view's columns."""
    return frame.select(*(
        f.expr(each.text).alias(each.name) for each in grouped.aggregation.items))

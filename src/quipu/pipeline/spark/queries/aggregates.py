"""Which aggregates can be maintained from changed rows, without reading all rows.

`aggregation_of` splits a query with GROUP BY into partial aggregates (`views/aggregation.py`).  It
returns None for a query that it does not support: sums of floats, DISTINCT, HAVING and the like are
computed again from all rows.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from quipu.pipeline.spark.queries.jvm_plans import class_of, items_of
from quipu.pipeline.sql.lexer import Token, split
from quipu.pipeline.sql.query_names import quoted
from quipu.pipeline.views.aggregation import ROWS, Aggregation, FinalColumn, PartialAggregate

_EXACT = ("tinyint", "smallint", "int", "bigint", "decimal")
_WHOLE = _EXACT[:4]
_ORDERED = (*_EXACT, "float", "double", "string", "binary", "date", "timestamp", "boolean")


def aggregation_of(
    plan: Any, query: str, *, only_grows: bool,  # noqa: ANN401 the JVM's objects have no types
) -> Aggregation | None:
    """The aggregation of a query, from its analyzed plan; None if it cannot be maintained."""
    clauses = _clauses(query)
    if str(plan.nodeName()) != "Aggregate" or clauses is None:
        return None
    grouping = items_of(plan.groupingExpressions())
    groups = tuple(f"#g{number}" for number in range(len(grouping)))
    partials = [PartialAggregate(ROWS, "count(*)")]
    columns = []
    for number, named in enumerate(items_of(plan.aggregateExpressions())):
        inner = named.child() if class_of(named) == "Alias" else named
        if class_of(inner) == "AggregateExpression":
            found = _function(inner, number, str(named.name()), only_grows=only_grows)
            if found is None:
                return None
            partials += found[0]
            columns.append(found[1])
            continue
        same = [group for group, each in zip(groups, grouping, strict=True)
                if inner.semanticEquals(each)]
        if not same:
            return None
        columns.append(FinalColumn(str(named.name()), same[0]))
    written = [f"{each.sql()} AS {quoted(group)}"
               for group, each in zip(groups, grouping, strict=True)]
    written += [f"{part.text} AS {quoted(part.name)}" for part in partials]
    text = f"SELECT {', '.join(written)} {clauses}"
    if grouping:
        text += f" GROUP BY {', '.join(str(each.sql()) for each in grouping)}"
    return Aggregation(text, groups, tuple(partials), tuple(columns))


def _function(
    call: Any, number: int, name: str, *, only_grows: bool,  # noqa: ANN401
) -> tuple[list[PartialAggregate], FinalColumn] | None:
    """The partial aggregates of a function, and the column computed from them; or None."""
    function = call.aggregateFunction()
    if call.isDistinct() or call.filter().isDefined():
        return None
    arguments = items_of(function.children())
    text = ", ".join(str(each.sql()) for each in arguments)
    kind = str(arguments[0].dataType().simpleString())
    whole, known = f"#a{number}", f"#n{number}"
    count = PartialAggregate(known, f"count({text})")
    match class_of(function):
        case "Count":
            return [PartialAggregate(whole, f"count({text})")], FinalColumn(name, whole)
        case "Sum" if kind.startswith(_EXACT):
            result = function.dataType().simpleString()
            total = PartialAggregate(whole, f"CAST(coalesce(sum({text}), 0) AS {result})")
            return [total, count], FinalColumn(name, whole, known)
        case "Average" if kind in _WHOLE:
            total = PartialAggregate(whole, f"CAST(coalesce(sum({text}), 0) AS bigint)")
            return [total, count], FinalColumn(name, whole, known, is_mean=True)
        case "Min" | "Max" as least if only_grows and kind.startswith(_ORDERED):
            value = PartialAggregate(whole, f"{least}({text})", least.lower())
            return [value], FinalColumn(name, whole)
        case _:
            return None


def _clauses(query: str) -> str | None:
    """FROM and WHERE of a query of the form SELECT … FROM … [WHERE …] [GROUP BY …]; else None."""
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


def negated(frame: DataFrame, aggregation: Aggregation) -> DataFrame:
    """The partial aggregates of removed rows, negated, to be added to their groups."""
    return frame.select(
        *(f.col(quoted(name)) for name in aggregation.groups),
        *((-f.col(quoted(part.name))).alias(part.name) for part in aggregation.partials))


def final_columns(frame: DataFrame, aggregation: Aggregation) -> DataFrame:
    """The view's columns, computed from a table by group."""
    return frame.select(*(
        f.expr(each.text).alias(each.name) for each in aggregation.columns))

"""`Scope`: the relations and views that a query may name.

    scope = Scope(planner, {"orders": schema}, {"big_orders": "SELECT * FROM orders WHERE …"})
    scope.frame(query, leaf)       # leaf("orders") returns a DataFrame of that relation
    scope.analyzed(query)          # the relations and columns that the query needs

Views that are not materialized are replaced by their queries, at any depth.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from quipu.pipeline.execution.arrow_columns import nullable
from quipu.pipeline.plan.views import used
from quipu.pipeline.spark.queries.aggregates import aggregation_of
from quipu.pipeline.spark.queries.analysis import (
    QueryAnalysis,
    QueryPlanner,
    analyzed,
    blank,
    is_product,
    is_row_by_row,
)
from quipu.pipeline.views.aggregation import GroupedQuery

Leaf = Callable[[str], DataFrame]


@dataclass(frozen=True)
class Scope:
    """The relations and views that a query may name."""

    planner: QueryPlanner
    relations: Mapping[str, StructType]
    views: Mapping[str, str]

    def frame(self, query: str, leaf: Leaf) -> DataFrame:
        """A query over the DataFrames of relations that `leaf` returns."""
        return self.planner.frame(query, {
            name: leaf(name) if name in self.relations else self.frame(self.views[name], leaf)
            for name in used(query, (*self.relations, *self.views))
        })

    def analyzed(self, query: str) -> QueryAnalysis:
        """The analysis of a query over the relations of this scope."""
        return analyzed(self.planner.admit(self.frame(query, self.blank)))

    def blank(self, name: str) -> DataFrame:
        """An empty relation of that name, to plan a query without data."""
        return blank(self.planner, name, self.relations[name])


def grouped_of(
    scope: Scope, query: str, plan: Any, *, only_grows: bool,  # noqa: ANN401 a plan of the JVM
) -> GroupedQuery | None:
    """How a query with GROUP BY is maintained by group; None if it must be computed again."""
    if str(plan.nodeName()) != "Aggregate":
        return None
    product = is_product(plan.child())
    if not product and not is_row_by_row(plan.child()):
        return None
    aggregation = aggregation_of(plan, query, only_grows=only_grows)
    if aggregation is None:
        return None
    try:
        state = scope.frame(aggregation.query, scope.blank).schema
    except AnalysisException:  # Spark cannot parse its own text of an expression
        return None
    schema = nullable(to_arrow_schema(state, timezone="UTC"))
    return GroupedQuery(aggregation, schema, product)

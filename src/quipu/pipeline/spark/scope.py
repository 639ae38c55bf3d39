"""What names in a query stand for.

    scope = Scope(bench, {"orders": schema}, {"big_orders": "SELECT * FROM orders WHERE …"})
    scope.frame(query, leaf)       # leaf("orders") is asked for a DataFrame of that relation
    scope.analyzed(query)          # which relations the query needs in the end, and their columns

Views that are not kept are their queries, at any depth.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from quipu.pipeline.plan.views import used
from quipu.pipeline.spark.aggregates import Grouped, aggregation_of
from quipu.pipeline.spark.analysis import (
    Analysis,
    Bench,
    analyzed,
    blank,
    is_product,
    is_row_by_row,
)

Leaf = Callable[[str], DataFrame]


@dataclass(frozen=True)
class Scope:
    """See above."""

    bench: Bench
    relations: Mapping[str, StructType]
    views: Mapping[str, str]

    def frame(self, query: str, leaf: Leaf) -> DataFrame:
        """The query over the relations that `leaf` gives."""
        return self.bench.frame(query, {
            name: leaf(name) if name in self.relations else self.frame(self.views[name], leaf)
            for name in used(query, (*self.relations, *self.views))
        })

    def analyzed(self, query: str) -> Analysis:
        """What the query needs."""
        return analyzed(self.bench.admit(self.frame(query, self.blank)))

    def blank(self, name: str) -> DataFrame:
        """An empty relation, for a name that is in the text of a query and not in its plan."""
        return blank(self.bench, name, self.relations[name])


def grouped_of(
    scope: Scope, query: str, plan: Any, *, only_grows: bool,  # noqa: ANN401 a plan of the JVM
) -> Grouped | None:
    """How a query with GROUP BY can be kept by group; None if it has to be computed anew."""
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
    except AnalysisException:  # an expression that Spark prints otherwise than it reads
        return None
    return Grouped(aggregation, state, product)

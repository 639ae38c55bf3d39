"""Which columns a SELECT needs of its relations, and whether it can be maintained by changes.

    analysis = analyzed(frame)        of SELECT a.x FROM a JOIN b USING (id), over `blank` relations
    analysis.needed     {"a": {"id", "x"}, "b": {"id"}}     other columns are never read
    analysis.is_linear  False: it combines rows of one relation with rows of another
    analysis.is_product True: every row is made of one row of each relation
    analysis.picks      None: it does more than select columns of one relation

Spark plans the query over empty relations whose columns are marked in their metadata.  A column is
needed if anything in the optimized plan refers to it.  A SELECT is linear if it handles every row
by itself: projections, filters, UNION ALL, generators.  Then its result over a change is the change
of its result, and no result needs to be stored.  A SELECT is a product if it only joins relations
by inner joins, and names each once: then its result over the change of one relation and the current
rows of the others is, again, the change of its result.
"""

import json
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from quipu.pipeline.spark.queries.admission import explain_missing, refuse_commands, refuse_outside
from quipu.pipeline.spark.queries.jvm_plans import class_of, items_of, nodes_of
from quipu.pipeline.spark.session.sessions import empty
from quipu.pipeline.sql.query_names import quoted

_MARK = "quipu.relation"
_ROW_BY_ROW = {"Project", "Filter", "SubqueryAlias", "View", "Generate", "Union"}
# Nodes whose references are the columns that they use; other nodes count as using all columns.
_NAMES_WHAT_IT_USES = {
    "Project", "Filter", "Join", "Aggregate", "Sort", "GlobalLimit", "LocalLimit", "Window",
    "Generate", "SubqueryAlias", "View", "Offset",
}


class QueryAnalysis(NamedTuple):
    """The columns that a query needs, and its properties, which the module's docstring explains."""

    schema: StructType
    needed: Mapping[str, frozenset[str]]  # the needed columns of every relation
    picks: tuple[str, ...] | None  # the columns of a query that only selects columns
    is_linear: bool
    is_product: bool
    is_repeatable: bool  # it depends neither on random numbers nor on the clock


class QueryPlanner:
    """Plans queries over DataFrames, which are temporary views while a SELECT is planned."""

    def __init__(self, spark: SparkSession, *, outside: bool = False) -> None:
        self.spark = spark
        self._outside = outside  # quipu.sql.outside.enabled
        self._lock = threading.RLock()  # temporary views belong to the session

    def frame(self, select: str, relations: Mapping[str, DataFrame]) -> DataFrame:
        """A SELECT over some relations, as a DataFrame."""
        with self._lock:
            try:
                for name, relation in relations.items():
                    relation.createOrReplaceTempView(quoted(name))
                refuse_commands(self.spark, select)
                return self.spark.sql(select)
            except AnalysisException as error:
                if not self._outside:
                    explain_missing(error)
                raise
            finally:
                for name in relations:
                    self.spark.catalog.dropTempView(name)

    def admit(self, frame: DataFrame) -> DataFrame:
        """Return a SELECT over `blank` relations; raises SqlError if it reads anything else."""
        if not self._outside:
            refuse_outside(frame, _marks)
        return frame


def spark_schema(schema: pa.Schema) -> StructType:
    """Spark's schema for an Arrow schema."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def blank(planner: QueryPlanner, name: str, schema: StructType) -> DataFrame:
    """An empty relation that `analyzed` recognizes.

    All of its columns may be NULL, else Spark would drop a test for NULL, and with it the column.
    """
    marked = StructType([
        StructField(field.name, field.dataType, nullable=True, metadata={_MARK: name})
        for field in schema.fields
    ])
    return empty(planner.spark, marked)


def analyzed_plan(frame: DataFrame) -> Any:  # noqa: ANN401 the JVM's objects have no types here
    """Spark's analyzed plan of a DataFrame."""
    return frame._jdf.queryExecution().analyzed()  # noqa: SLF001 the only way to Spark's plans


def analyzed(frame: DataFrame) -> QueryAnalysis:
    """The analysis of a SELECT over `blank` relations."""
    execution = frame._jdf.queryExecution()  # noqa: SLF001
    plan = execution.analyzed()
    leaves = [_marks(node) for node in nodes_of(plan) if node.children().isEmpty()]
    needed: dict[str, set[str]] = {name: set() for leaf in leaves for name, _ in leaf.values()}
    optimized = execution.optimizedPlan()
    used = _used(optimized)
    for node in nodes_of(optimized):
        for number, (name, column) in _marks(node).items():
            if number in used:
                needed[name].add(column)
    jvm: Any = frame.sparkSession._jvm  # noqa: SLF001
    clock = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
    repeatable = bool(plan.deterministic()) and not plan.containsPattern(clock)
    linear = is_row_by_row(plan) or is_row_by_row(optimized)  # both compute the same result
    return QueryAnalysis(
        frame.schema, {name: frozenset(columns) for name, columns in needed.items()},
        _picks(optimized) if len(needed) == 1 else None,  # a second may have been optimized away
        is_linear=linear and repeatable,
        is_product=is_product(plan) and repeatable, is_repeatable=repeatable,
    )


def is_row_by_row(plan: Any) -> bool:  # noqa: ANN401
    """Is a plan linear: does it handle every row by itself?"""
    return all(
        _marks(node) if node.children().isEmpty()
        else str(node.nodeName()) in _ROW_BY_ROW and node.subqueries().isEmpty()
        for node in nodes_of(plan)
    )


def is_product(plan: Any) -> bool:  # noqa: ANN401
    """Is a plan a product: does it only join relations, each once?"""
    relations = []
    for node in nodes_of(plan):
        kind = str(node.nodeName())
        if node.children().isEmpty():
            relations += sorted({name for name, _ in _marks(node).values()}) or [""]
        elif kind == "Join":
            if str(node.joinType().toString()) not in ("Inner", "Cross"):
                return False
        elif kind not in _ROW_BY_ROW - {"Union"}:
            return False
        if not node.subqueries().isEmpty():
            return False
    return "" not in relations and len(set(relations)) == len(relations)


def _picks(plan: Any) -> tuple[str, ...] | None:  # noqa: ANN401
    """The columns that a plan selects of its relation; None if it does anything else."""
    picked = items_of(plan.output())
    if str(plan.nodeName()) == "Project":
        picked = [each.child() if class_of(each) == "Alias" else each
                  for each in items_of(plan.projectList())]
        plan = plan.child()
    columns = _marks(plan)
    if not columns or not all(class_of(each) == "AttributeReference" for each in picked):
        return None
    return tuple(columns[int(each.exprId().id())][1] for each in picked)


def _marks(node: Any) -> dict[int, tuple[str, str]]:  # noqa: ANN401
    """The relation and column of each output of a `blank` relation, by Spark's expression id."""
    if not node.children().isEmpty():
        return {}
    found = {}
    for attribute in items_of(node.output()):
        if mark := json.loads(attribute.metadata().json()).get(_MARK):
            found[int(attribute.exprId().id())] = (str(mark), str(attribute.name()))
    return found


def _used(plan: Any) -> set[int]:  # noqa: ANN401
    """The expression ids of all columns that a node refers to, or that the plan returns."""
    used = _numbers(plan.outputSet())
    for node in nodes_of(plan):
        used |= _numbers(node.references())
        if str(node.nodeName()) not in _NAMES_WHAT_IT_USES:
            for child in items_of(node.children()):
                used |= _numbers(child.outputSet())
    return used


def _numbers(attributes: Any) -> set[int]:  # noqa: ANN401
    return {int(each.exprId().id()) for each in items_of(attributes.toSeq())}

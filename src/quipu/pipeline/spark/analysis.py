"""What a SELECT asks of the relations that it names, as Spark's own planner understands it.

    analysis = analyzed(bench, "SELECT a.x FROM a JOIN b USING (id)", {"a": schema, "b": schema})
    analysis.needed     {"a": {"id", "x"}, "b": {"id"}}     the rest is never fetched nor decoded
    analysis.is_linear  False: rows of one relation meet rows of another
    analysis.is_product True: every row is made of one row of each relation
    analysis.picks      None: it does more than to pick columns of one relation

Relations are shown to Spark as empty ones whose columns are marked in their metadata.  A column is
needed if anything in the optimized plan looks at it.  A SELECT is linear if it treats every row on
its own: projections, filters, UNION ALL, generators.  Then what it makes of a change is a change
of what it makes of the whole, and nothing needs to be kept to follow it.  A SELECT is a product if
it only joins, by inner joins, relations that it names once each: then what it makes of a change of
one relation and of the others as they are is, again, the change of the whole.
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

from quipu.pipeline.spark.admission import explain_missing, refuse_commands, refuse_outside
from quipu.pipeline.spark.session import empty
from quipu.pipeline.spark.trees import class_of, items_of, nodes_of

_MARK = "quipu.relation"
_ROW_BY_ROW = {"Project", "Filter", "SubqueryAlias", "View", "Generate", "Union"}
# Nodes that hand every column on, needed or not, are those that do not name what they use.
_NAMES_WHAT_IT_USES = {
    "Project", "Filter", "Join", "Aggregate", "Sort", "GlobalLimit", "LocalLimit", "Window",
    "Generate", "SubqueryAlias", "View", "Offset",
}


class Analysis(NamedTuple):
    """See above."""

    schema: StructType
    needed: Mapping[str, frozenset[str]]  # every relation that is used, and its columns
    picks: tuple[str, ...] | None  # columns of the one relation, if that is all there is to it
    is_linear: bool
    is_product: bool
    is_repeatable: bool  # neither chance nor the clock has a say


class Bench:
    """A session of our own where names stand for DataFrames while one SELECT is planned."""

    def __init__(self, spark: SparkSession, *, outside: bool = False) -> None:
        self.spark = spark
        self._outside = outside  # may queries reach out of the pipeline?
        self._lock = threading.RLock()  # names are the session's; a plan, once made, has none

    def frame(self, select: str, relations: Mapping[str, DataFrame]) -> DataFrame:
        """The SELECT over these relations."""
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
        """A SELECT over `blank` relations, if it reaches nothing else."""
        if not self._outside:
            refuse_outside(frame, _marks)
        return frame


def quoted(name: str) -> str:
    """A name as Spark reads it whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def spark_schema(schema: pa.Schema) -> StructType:
    """The types under which Spark shows Arrow's."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def blank(bench: Bench, name: str, schema: StructType) -> DataFrame:
    """An empty relation that `analyzed` recognizes.

    All of its columns may be NULL, so that a test for NULL is seen to need the column.
    """
    marked = StructType([
        StructField(field.name, field.dataType, nullable=True, metadata={_MARK: name})
        for field in schema.fields
    ])
    return empty(bench.spark, marked)


def plan_of(frame: DataFrame) -> Any:  # noqa: ANN401 the JVM's objects have no types here
    """How Spark understands a DataFrame."""
    return frame._jdf.queryExecution().analyzed()  # noqa: SLF001 the only way to Spark's plans


def analyzed(frame: DataFrame) -> Analysis:
    """What a SELECT over `blank` relations needs."""
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
    linear = is_row_by_row(plan) or is_row_by_row(optimized)  # either form says it for both
    return Analysis(
        frame.schema, {name: frozenset(columns) for name, columns in needed.items()},
        _picks(optimized) if len(needed) == 1 else None,  # a second one may be optimized away
        is_linear=linear and repeatable,
        is_product=is_product(plan) and repeatable, is_repeatable=repeatable,
    )


def is_row_by_row(plan: Any) -> bool:  # noqa: ANN401
    """Does a plan treat every row on its own?"""
    return all(
        _marks(node) if node.children().isEmpty()
        else str(node.nodeName()) in _ROW_BY_ROW and node.subqueries().isEmpty()
        for node in nodes_of(plan)
    )


def is_product(plan: Any) -> bool:  # noqa: ANN401
    """Does a plan only join relations, each once?"""
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
    """Which columns a plan picks, if that is all it does."""
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
    """Of one of our relations, its columns by Spark's number; of anything else, nothing."""
    if not node.children().isEmpty():
        return {}
    found = {}
    for attribute in items_of(node.output()):
        if mark := json.loads(attribute.metadata().json()).get(_MARK):
            found[int(attribute.exprId().id())] = (str(mark), str(attribute.name()))
    return found


def _used(plan: Any) -> set[int]:  # noqa: ANN401
    """The numbers of all columns that some node looks at, or that come out at the top."""
    used = _numbers(plan.outputSet())
    for node in nodes_of(plan):
        used |= _numbers(node.references())
        if str(node.nodeName()) not in _NAMES_WHAT_IT_USES:
            for child in items_of(node.children()):
                used |= _numbers(child.outputSet())
    return used


def _numbers(attributes: Any) -> set[int]:  # noqa: ANN401
    return {int(each.exprId().id()) for each in items_of(attributes.toSeq())}

"""A materialized view on Spark: its plan, its files, and its versions as DataFrames.

The result of a linear query is not stored: the view is the query over the tables of its sources,
and its changelog is the query over their changelogs.  Any other query has a table of results
(`results.py`).  The files are described in `pipeline/views/view_files.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from quipu.pipeline.envelopes.dead_letters import LETTERS
from quipu.pipeline.envelopes.events import EventShape
from quipu.pipeline.execution.arrow_columns import needed_columns, nullable
from quipu.pipeline.execution.pruning import prune
from quipu.pipeline.source import PlannedSource
from quipu.pipeline.spark.queries.aggregates import final_columns
from quipu.pipeline.spark.queries.analysis import QueryAnalysis, spark_schema
from quipu.pipeline.spark.queries.relations import appended_frame, table_frame, with_all_columns
from quipu.pipeline.spark.queries.scope import Leaf, Scope
from quipu.pipeline.types import schema_of
from quipu.pipeline.views.aggregation import GroupedQuery, group_shape
from quipu.pipeline.views.result_merge import result_shape
from quipu.pipeline.views.stored_rows import StoredColumns
from quipu.pipeline.views.versions import AppendTable, Version
from quipu.pipeline.views.view_files import ViewFiles


@dataclass(frozen=True)
class ViewPlan:
    """The analyzed query of a view, and the sources that it reads."""

    name: str
    query: str
    scope: Scope
    sources: Mapping[str, PlannedSource]
    analysis: QueryAnalysis
    grouped: GroupedQuery | None  # if changes can be added to groups
    buckets: int  # of new tables
    batch_offsets_max: int

    @cached_property
    def schema(self) -> pa.Schema:
        """The view's columns."""
        return nullable(to_arrow_schema(self.analysis.schema, timezone="UTC"))

    @property
    def only_grows(self) -> bool:
        """Is no row ever removed?"""
        keyed = any(source.is_keyed for source in self.sources.values())
        return self.analysis.is_linear and not keyed

    @property
    def result(self) -> EventShape | None:
        """The shape of the table of results; None if the query is linear."""
        if self.analysis.is_linear:
            return None
        return (result_shape(self.schema) if self.grouped is None
                else group_shape(self.grouped.schema))


class View:
    """A materialized view: the content of its `files`, as DataFrames."""

    def __init__(self, spark: SparkSession, plan: ViewPlan, folder: Path) -> None:
        self.spark = spark
        self.plan = plan
        self.files = ViewFiles(
            folder, {name: prune(source, plan.analysis.needed[name])
                     for name, source in plan.sources.items()},
            result=plan.result, buckets=plan.buckets, batch_offsets_max=plan.batch_offsets_max)
        self.job_group = ""  # the group of the Spark jobs of its streaming query

    @property
    def names(self) -> list[str]:
        """The sources of the view, in the order of their numbers."""
        return self.files.names

    @property
    def schema(self) -> pa.Schema:
        """The view's columns."""
        return self.plan.schema

    @cached_property
    def stored(self) -> StoredColumns | None:
        """How to read the view's rows from its files alone; None if a query is needed."""
        if self.files.result is not None:
            return StoredColumns(self.schema, tuple(self.schema.names), self.plan.grouped)
        picks = self.plan.analysis.picks
        return None if picks is None else StoredColumns(self.schema, picks)

    def frame(self, version: Version) -> DataFrame:
        """The view's rows in a version."""
        if self.files.result is None:
            return self.through_query(lambda name: self.source_frame(name, version))
        base = self.files.result_at(version.number)
        found = table_frame(self.spark, base, base.shape.events.row.names)
        if self.plan.grouped is None:
            return found
        return final_columns(found, self.plan.grouped.aggregation)

    def through_query(self, leaf: Leaf, query: str | None = None) -> DataFrame:
        """The view's query, or another one, over the DataFrames that `leaf` returns for sources."""
        scope = self.plan.scope
        return scope.frame(query or self.plan.query, lambda name: (
            leaf(name) if name in self.names else scope.blank(name)))

    def source_frame(self, name: str, version: Version) -> DataFrame:
        """The rows of a source in a version, as the query sees them."""
        number = self.names.index(name)
        columns = self.stored_columns(number)
        if number in self.files.shapes:
            table = self.files.table(number, version.number)
            return self.with_all_columns(name, table_frame(self.spark, table, columns))
        source_input = self.files.inputs.sources[number]
        files = version.appended.get(number, AppendTable()).files
        return self.with_all_columns(name, appended_frame(
            self.spark, source_input.rows, self.files.row_schema(number), files, columns))

    def dead_letters(self, name: str, version: Version) -> DataFrame:
        """The dead letters of a source, up to a version."""
        number = self.names.index(name)
        files = version.dead.get(number, AppendTable()).files
        return appended_frame(self.spark, self.files.inputs.sources[number].dead, LETTERS, files,
                              LETTERS.names)

    def stored_columns(self, number: int) -> list[str]:
        """The columns of a source that the query reads from its table."""
        return needed_columns(self.files.row_schema(number),
                              self.plan.analysis.needed[self.names[number]])

    def with_all_columns(self, name: str, frame: DataFrame) -> DataFrame:
        """Rows of a source with all of its columns: those that the query does not need are NULL."""
        return with_all_columns(frame, spark_schema(schema_of(self.plan.sources[name].columns)))

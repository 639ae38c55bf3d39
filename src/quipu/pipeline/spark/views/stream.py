"""The streaming query of a view: each of its batches makes a new version, exactly once.

A batch is read, decoded and merged by tasks, and committed by the driver (`views/batch_commit.py`,
which says why a crash at any point is safe).  Spark writes the end offsets of a batch to its
checkpoint before the batch begins, and calls `run_batch` with its id.
"""

import json
from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from quipu.client.shared import shared
from quipu.pipeline.execution.pruning import read_options
from quipu.pipeline.reading.positions import Reached
from quipu.pipeline.reading.stream import beginning
from quipu.pipeline.source import PlannedSource
from quipu.pipeline.spark.session import jobs
from quipu.pipeline.spark.session.sessions import parallelism
from quipu.pipeline.spark.views.offset_source import NAME, OPTION
from quipu.pipeline.spark.views.results import result_states
from quipu.pipeline.spark.views.tasks import SMALL, run_tasks
from quipu.pipeline.spark.views.view import View
from quipu.pipeline.views.append_files import RowFile
from quipu.pipeline.views.batch_commit import BatchCommit
from quipu.pipeline.views.cleaning import clean
from quipu.pipeline.views.inputs import plan_tasks, positions_from_json, warn_recreated
from quipu.pipeline.views.versions import NO_VERSION

CLEAN_EVERY = 20  # batches


def start_stream(
    view: View, succeeded: Callable[[], None], *, trigger_ms: int,
) -> StreamingQuery:
    """Start the streaming query of a view, from its checkpoint if it has one.

    `succeeded` is called after each version.
    """
    stream = ViewStream(view, succeeded)
    stream.prepare()
    reader = view.spark.readStream.format(NAME).option(OPTION, view.files.inputs.to_text())
    query = (
        reader.load().writeStream.foreachBatch(stream.run_batch)
        .option("checkpointLocation", str(view.files.checkpoint))
        .trigger(processingTime=f"{trigger_ms} milliseconds")
        .start()
    )
    view.job_group = query.runId
    return query


class ViewStream:
    """The batches of a view's streaming query."""

    def __init__(self, view: View, succeeded: Callable[[], None]) -> None:
        self._view = view
        self._files = view.files
        self._succeeded = succeeded
        self._cores = parallelism(view.spark)

    def prepare(self) -> None:
        """Publish version 0 of a view that has no version: its rows before any message."""
        if self._files.latest().number != NO_VERSION:
            return
        starts = [start_of(each.source.source) for each in self._files.inputs.sources]
        batch = BatchCommit.first(self._files, starts)
        batch.commit_tables([], self._run_task)
        self._commit_result(batch, small=False)
        batch.publish()

    def run_batch(self, _: DataFrame, batch_id: int) -> None:
        """Make a version out of a batch, unless an earlier attempt has published it."""
        batch = BatchCommit.begin(self._files, batch_id, lambda: self._positions(batch_id))
        if batch is None:
            return
        inputs = self._files.inputs
        tasks = plan_tasks(inputs, batch.base.positions, batch.positions, self._cores)
        small = batch.messages <= SMALL
        rows = run_tasks(self._view.spark, inputs, tasks, batch.tables, version=batch.number,
                         cores=self._cores, small=small)
        batch.commit_tables(rows, self._run_task)
        self._commit_result(batch, small=small)
        batch.publish()
        self._succeeded()
        if batch.number % CLEAN_EVERY == 0:
            clean(self._files, batch.number)

    def _positions(self, batch_id: int) -> list[Reached]:
        """The end positions of a batch, which Spark has written to its checkpoint."""
        lines = (self._files.checkpoint / "offsets" / str(batch_id)).read_text().splitlines()
        return positions_from_json(json.loads(lines[-1]))

    def _commit_result(self, batch: BatchCommit, *, small: bool) -> None:
        """Update the table of results, if the view has one that lacks this version."""
        base = batch.result_base()
        if base is not None:
            assert batch.version is not None
            batch.commit_result(base, result_states(
                self._view, base, batch.base, batch.version, small=small, cores=self._cores))

    def _run_task(self, work: Callable[[], list[RowFile]]) -> list[RowFile]:
        return jobs.run(self._view.spark, [work])


def start_of(source: PlannedSource) -> Reached:
    """The positions at which a view begins to read a source."""
    options = read_options(source)
    return beginning(shared(options.client), options, warn_recreated)

"""The driver's side of a batch: its tables committed, then its version published, exactly once.

    batch = BatchCommit.begin(files, batch_id, positions)     None: this batch is published already
    rows = …                              tasks read and merge, for the tables in `batch.tables`
    batch.commit_tables(rows, run_task)   OPEN -> TABLES
    base = batch.result_base()            None: the view has no table of results, or it is committed
    batch.commit_result(base, states)     only if there is a base
    batch.publish()                       TABLES -> PUBLISHED

Spark's checkpoint knows up to where a batch goes before it begins, and repeats the very same batch,
under the same id, if it was not finished.  So a driver may stop anywhere: tables that have the
batch already are found and left alone, and files that no commit names are cleaned away.

Version 0 is the view before its first message (`BatchCommit.first`); batch n makes version n + 1.

Invariants
    pipeline.V2  a version is published after all of its tables are committed and the names of its
                 files are on disk: a reader that finds the version finds all that it names
    pipeline.V3  the positions of a version are not before those of its base, in topics that were
                 not created anew
    pipeline.V4  a batch makes one version, once: if its id comes again after it was published,
                 nothing is done; if it was committed in part, the rest is
    pipeline.V5  counts of messages never shrink, and count what lies between the positions or less
"""

import time
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import partial
from pathlib import Path

import pyarrow as pa

from quipu.pipeline.durable import flush_directory
from quipu.pipeline.envelopes.dead_letters import LETTERS
from quipu.pipeline.execution.task_rows import TaskRow, TaskRowKind
from quipu.pipeline.reading.positions import Reached, ranges_between, recreated_topics, total
from quipu.pipeline.tables import commits
from quipu.pipeline.tables.commits import TableAt
from quipu.pipeline.tables.contract import BucketState
from quipu.pipeline.views import append_files, versions
from quipu.pipeline.views.append_files import RowFile
from quipu.pipeline.views.versions import NO_VERSION, AppendTable, SourceCounts, Version
from quipu.pipeline.views.view_files import ViewFiles

RunTask = Callable[[Callable[[], list[RowFile]]], list[RowFile]]  # where compaction is done


class BatchState(Enum):
    """How much of a batch is committed."""

    OPEN = "open"  # this object has committed no table
    TABLES = "tables"  # the tables of the sources have it
    PUBLISHED = "published"  # the table of results has it too, and readers see the version


class BatchCommit:
    """One batch on its way into a view.  Its methods are called in the order shown above."""

    def __init__(
        self, files: ViewFiles, base: Version, number: int, positions: Sequence[Reached],
    ) -> None:
        assert number > base.number, (number, base.number)
        assert len(positions) == len(files.names), (len(positions), files.names)
        self.files = files
        self.base = base
        self.number = number
        self.positions = tuple(positions)
        self.state = BatchState.OPEN
        self.version: Version | None = None  # from TABLES on
        self.tables = self._open_tables()
        self._result_open = files.result is not None  # until it is known to have this batch
        self.messages = total([each for first, last in self._moves()
                               for each in ranges_between(first, last)])
        self.invariants()

    @classmethod
    def begin(
        cls, files: ViewFiles, batch_id: int, positions: Callable[[], Sequence[Reached]],
    ) -> "BatchCommit | None":
        """The commit of a batch of the streaming query; None if it is published (pipeline.V4)."""
        assert batch_id >= 0, batch_id
        base, number = files.latest(), batch_id + 1
        if base.number >= number:
            return None
        return cls(files, base, number, positions())

    @classmethod
    def first(cls, files: ViewFiles, positions: Sequence[Reached]) -> "BatchCommit":
        """The commit of version 0, which has seen no messages, of a view without versions."""
        assert files.latest().number == NO_VERSION, files.latest().number
        return cls(files, Version(), 0, positions)

    def commit_tables(self, rows: Iterable[TaskRow], run_task: RunTask) -> Version:
        """Commit what tasks have merged and written; the version that `publish` will publish."""
        assert self.state is BatchState.OPEN, self.state
        by_kind: dict[TaskRowKind, list[TaskRow]] = {kind: [] for kind in TaskRowKind}
        for row in rows:
            by_kind[row.kind].append(row)
        assert not by_kind[TaskRowKind.PARCEL], "a parcel that no task has merged"
        self._commit_states(by_kind[TaskRowKind.BUCKET_STATE])
        counts = list(self.base.counts) or [SourceCounts() for _ in self.positions]
        for row in by_kind[TaskRowKind.COUNTS]:
            counts[row.source] = counts[row.source].plus(SourceCounts(**row.json))
        self.version = Version(
            self.number, self.base.number, time.time_ns() // 1_000_000, self.positions,
            tuple(counts),
            self._appended(self.base.appended, by_kind[TaskRowKind.APPENDED], run_task,
                           lambda source: (self.files.inputs.sources[source].rows,
                                           self.files.row_schema(source))),
            self._appended(self.base.dead, by_kind[TaskRowKind.DEAD_LETTERS], run_task,
                           lambda source: (self.files.inputs.sources[source].dead, LETTERS)))
        self.state = BatchState.TABLES
        self.invariants()
        return self.version

    def result_base(self) -> TableAt | None:
        """The table of results that this batch is to be committed to; None if there is none."""
        assert self.state is BatchState.TABLES, self.state
        if self.files.result is None:
            return None
        directory, shape = self.files.result
        manifest = commits.begin(directory, self.number)
        self._result_open = manifest is not None
        return None if manifest is None else TableAt(directory, shape, manifest)

    def commit_result(self, base: TableAt, states: Iterable[BucketState]) -> None:
        """Commit the new states of the buckets of the table of results."""
        assert self.state is BatchState.TABLES, self.state
        assert base.manifest.version < self.number, (base.manifest.version, self.number)
        made = commits.commit(base.directory, base.manifest, self.number, states)
        assert made.version == self.number, (made.version, self.number)
        self._result_open = False
        self.invariants()

    def publish(self) -> Version:
        """Make the version visible (pipeline.V2)."""
        assert self.state is BatchState.TABLES, self.state
        assert self.version is not None
        assert not self._result_open, "the table of results is not committed"
        versions.publish(self.files.versions, self.version)
        self.state = BatchState.PUBLISHED
        self.invariants()
        return self.version

    def invariants(self) -> None:
        """Raise AssertionError if an invariant of the module does not hold."""
        for before, after in self._moves():  # pipeline.V3
            anew = recreated_topics(before, after.topic_ids)
            for partition, offset in before.positions.items():
                assert (partition.topic in anew
                        or after.positions.get(partition, offset) >= offset), partition
        if self.state is BatchState.OPEN:
            assert self.version is None
            return
        assert self.version is not None
        assert (self.version.number, self.version.base) == (self.number, self.base.number)
        assert self.version.positions == self.positions
        read = sum(each.messages for each in self.version.counts)
        known = sum(each.messages for each in self.base.counts)
        assert known <= read <= known + self.messages, (known, read, self.messages)  # pipeline.V5
        if self.state is BatchState.PUBLISHED:
            assert versions.version_path(self.files.versions, self.number).exists()

    def _moves(self) -> list[tuple[Reached, Reached]]:
        """For each source, the positions before and after the batch; none for version 0."""
        if self.base.number == NO_VERSION:
            return []
        return list(zip(self.base.positions, self.positions, strict=True))

    def _open_tables(self) -> dict[int, TableAt]:
        """The tables by key to which this batch is not committed yet (pipeline.V4)."""
        found = {}
        for source, shape in self.files.shapes.items():
            directory = self.files.inputs.sources[source].directory
            manifest = commits.begin(directory, self.number)
            if manifest is not None:
                found[source] = TableAt(directory, shape, manifest)
        return found

    def _commit_states(self, rows: Iterable[TaskRow]) -> None:
        states: dict[int, list[BucketState]] = {}
        for row in rows:
            states.setdefault(row.source, []).append(BucketState.from_json(row.json))
        for source, those in states.items():
            base = self.tables[source]
            assert base.manifest.version < self.number, (source, base.manifest.version)
            made = commits.commit(base.directory, base.manifest, self.number, those)
            assert made.version == self.number, (made.version, self.number)

    def _appended(
        self, base: dict[int, AppendTable], rows: Iterable[TaskRow], run_task: RunTask,
        where: Callable[[int], tuple[Path, pa.Schema]],
    ) -> dict[int, AppendTable]:
        """The append-only tables of the new version, by source."""
        added: dict[int, list[RowFile]] = {}
        for row in rows:
            added.setdefault(row.source, []).append(RowFile(*row.json))
        return {source: _append(*where(source), base.get(source, AppendTable()),
                                added.get(source, []), run_task)
                for source in {*base, *added}}


def _append(
    directory: Path, schema: pa.Schema, base: AppendTable, added: list[RowFile], run_task: RunTask,
) -> AppendTable:
    """An append-only table with the files of a batch; small files are compacted now and then."""
    files = [*base.files, *added]
    small = append_files.files_to_compact(files)
    if small:
        gone = set(small)
        files = [file for file in files if file not in gone]
        made = run_task(partial(append_files.compact, directory, schema, small))
        assert sum(file.rows for file in made) == sum(file.rows for file in small), directory
        files += made
    table = AppendTable(tuple(files), tuple(added))
    assert table.rows == base.rows + sum(file.rows for file in added), directory
    if added or small:
        flush_directory(directory)  # pipeline.V2: names before the version that has them
    return table

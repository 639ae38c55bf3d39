"""Batches committed to a view's files: each once, wherever the driver stops."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest

from quipu.model.ids import TopicPartition
from quipu.pipeline.envelopes.contract import Messages
from quipu.pipeline.envelopes.events import Action, EventShape, Keeping, event_shape
from quipu.pipeline.envelopes.parcels import Packer
from quipu.pipeline.execution.pruning import PrunedSource
from quipu.pipeline.execution.task_rows import NO_BUCKET, TaskRow, TaskRowKind, json_row
from quipu.pipeline.formats.contract import Decoded
from quipu.pipeline.formats.specs import Text
from quipu.pipeline.reading.positions import Reached
from quipu.pipeline.source import EnvelopeKind, PlannedSource, Start, TopicLocation
from quipu.pipeline.tables import commits
from quipu.pipeline.tables.reading import rows
from quipu.pipeline.tables.store import merge_events
from quipu.pipeline.types import Column
from quipu.pipeline.views import versions
from quipu.pipeline.views.append_files import COMPACT_COUNT, RowFile, read_rows, write_rows
from quipu.pipeline.views.batch_commit import BatchCommit, BatchState
from quipu.pipeline.views.cleaning import KEEP, clean
from quipu.pipeline.views.merge_task import merge_task
from quipu.pipeline.views.view_files import ViewFiles

PART = TopicPartition("t", 0)
ID, OTHER_ID = UUID(int=1), UUID(int=2)
TEXT = Column("text", pa.string())
PLAIN = PlannedSource("plain", TopicLocation("localhost:1", ("t",)), Start(), Text(), (TEXT,))
KEYED = replace(PLAIN, name="keyed", key=Text(), envelope=EnvelopeKind.UPSERT)
RESULT = EventShape(keeping=Keeping.LATEST, row=pa.schema([("n", pa.int64())]))
KEYED_NUMBER, PLAIN_NUMBER = 0, 1  # by name


class Stopped(Exception):
    """The driver was killed here."""


def files_in(folder: Path) -> ViewFiles:
    """A view over a source by key and one without keys, with a table of results."""
    return ViewFiles(folder, {"plain": PrunedSource(PLAIN), "keyed": PrunedSource(KEYED)},
                     result=RESULT, buckets=2, batch_offsets_max=100)


def at(offset: int, topic_id: UUID = ID) -> list[Reached]:
    """Both sources are read up to an offset of one topic."""
    return [Reached({PART: offset}, {"t": topic_id})] * 2


def here(work: Callable[[], list[RowFile]]) -> list[RowFile]:
    """What the driver has tasks do is done in this process."""
    return work()


def task_rows(files: ViewFiles, batch: BatchCommit, text: str) -> Iterator[TaskRow]:
    """What tasks do with a message of key `text` for one source, and of no key for the other."""
    shape = event_shape(KEYED)
    packer = Packer(shape, buckets=files.inputs.sources[KEYED_NUMBER].buckets)
    records = pa.record_batch({"offset": pa.array([batch.number], pa.int64())})
    packer.add(Messages("t", 0, records, Decoded([], pa.nulls(1, pa.string()), pa.array([False]))),
               pa.record_batch([pa.array([text.encode()]), pa.array([Action.ROW], pa.uint8()),
                                pa.array([text])], schema=shape.schema))
    parcels = [TaskRow(KEYED_NUMBER, parcel.bucket, TaskRowKind.PARCEL, parcel.data)
               for parcel in packer.parcels()]
    yield from merge_task(parcels, batch.tables, batch.number)
    file = write_rows(files.inputs.sources[PLAIN_NUMBER].rows, pa.table({"text": [text]}))
    yield json_row(PLAIN_NUMBER, NO_BUCKET, TaskRowKind.APPENDED, file)
    for source in (KEYED_NUMBER, PLAIN_NUMBER):
        counts = {"messages": 1, "size": len(text), "dead": 0}
        yield json_row(source, NO_BUCKET, TaskRowKind.COUNTS, counts)


def commit_result(batch: BatchCommit) -> None:
    """The result is the number of the version."""
    base = batch.result_base()
    if base is None:
        return
    event = pa.table([pa.array([b"n"]), pa.array([Action.ROW], pa.uint8()),
                      pa.array([batch.number])], schema=RESULT.schema)
    state = base.manifest.bucket(0)
    batch.commit_result(base, [merge_events(
        base.directory, base.shape, state, event, batch.number)])


def first_version(files: ViewFiles) -> None:
    batch = BatchCommit.first(files, at(0))
    batch.commit_tables([], here)
    commit_result(batch)
    batch.publish()


def run_batch(files: ViewFiles, batch_id: int, *, stop_at: int = 4) -> None:
    """Batch n reads the message at offset n; the driver is killed before a step."""
    batch = BatchCommit.begin(files, batch_id, lambda: at(batch_id + 1))
    if batch is None:
        return
    steps: list[Callable[[], object]] = [
        lambda: batch.commit_tables(list(task_rows(files, batch, f"m{batch_id}")), here),
        lambda: commit_result(batch), batch.publish]
    for number, step in enumerate(steps):
        if number == stop_at:
            raise Stopped
        step()


def content(files: ViewFiles) -> tuple[list[str], list[str], list[int]]:
    """What the newest version has: of the source by key, of the other one, and of the result."""
    version = files.latest()
    table, result = files.table(KEYED_NUMBER, version.number), files.result_at(version.number)
    plain = read_rows(files.inputs.sources[PLAIN_NUMBER].rows, files.row_schema(PLAIN_NUMBER),
                      version.appended[PLAIN_NUMBER].files, ["text"])
    return (
        sorted(text for state in table.manifest.buckets for batch in rows(
            table.directory, table.shape, state, ["text"]) for text in batch.column(0).to_pylist()),
        sorted(text for batch in plain for text in batch.column(0).to_pylist()),
        [n for state in result.manifest.buckets for batch in rows(
            result.directory, result.shape, state, ["n"]) for n in batch.column(0).to_pylist()])


@pytest.mark.parametrize("stop_at", range(3), ids=["before the tables", "before the result",
                                                   "before the version"])
def test_a_batch_counts_once_wherever_the_driver_stops(tmp_path: Path, stop_at: int) -> None:
    """I11: pipeline.V2, pipeline.V4: until it is published readers see the version before it."""
    files = files_in(tmp_path)
    first_version(files)
    run_batch(files, 0)
    before = content(files)
    with pytest.raises(Stopped):
        run_batch(files, 1, stop_at=stop_at)
    assert files.latest().number == 1
    assert content(files) == before == (["m0"], ["m0"], [1])

    restarted = files_in(tmp_path)  # another driver, with the checkpoint of the first
    run_batch(restarted, 1)
    assert content(restarted) == (["m0", "m1"], ["m0", "m1"], [2])
    assert [each.messages for each in restarted.latest().counts] == [2, 2]
    assert restarted.latest().positions == tuple(at(2))


def test_a_batch_that_is_published_is_recognised(tmp_path: Path) -> None:
    """I11: pipeline.V4: its id comes again if Spark's own commit was lost; nothing is done."""
    files = files_in(tmp_path)
    first_version(files)
    run_batch(files, 0)
    before = files.latest()
    assert BatchCommit.begin(files, 0, list) is None  # not even its positions are read
    run_batch(files, 0)
    assert files.latest() == before
    assert versions.numbers(files.versions) == [0, 1]


def test_tables_that_have_a_batch_are_not_merged_again(tmp_path: Path) -> None:
    """I11: pipeline.V4: parcels of a batch that a table has already are dropped."""
    files = files_in(tmp_path)
    first_version(files)
    with pytest.raises(Stopped):
        run_batch(files, 0, stop_at=1)
    batch = BatchCommit.begin(files, 0, lambda: at(1))
    assert batch is not None
    assert batch.tables == {}
    kinds = {row.kind for row in task_rows(files, batch, "m0")}
    assert kinds == {TaskRowKind.APPENDED, TaskRowKind.COUNTS}


def test_positions_only_move_forward_within_a_topic(tmp_path: Path) -> None:
    """I11, I15: pipeline.V3: backwards only into a topic that was created anew."""
    files = files_in(tmp_path)
    first_version(files)
    run_batch(files, 0)
    with pytest.raises(AssertionError, match="t-0"):
        BatchCommit.begin(files, 1, lambda: at(0))
    anew = BatchCommit.begin(files, 1, lambda: at(0, OTHER_ID))
    assert anew is not None
    assert anew.messages == 0


def test_a_version_counts_no_more_messages_than_lie_between_its_positions(tmp_path: Path) -> None:
    """I11: pipeline.V5: a task whose rows came twice is found out before readers see them."""
    files = files_in(tmp_path)
    first_version(files)
    batch = BatchCommit.begin(files, 0, lambda: at(1))
    assert batch is not None
    twice = json_row(PLAIN_NUMBER, NO_BUCKET, TaskRowKind.COUNTS,
                     {"messages": 1, "size": 1, "dead": 0})
    with pytest.raises(AssertionError):
        batch.commit_tables([twice] * 3, here)
    assert files.latest().number == 0


def test_steps_are_taken_in_order_and_once(tmp_path: Path) -> None:
    """I11: pipeline.V2: nothing is published before its tables."""
    files = files_in(tmp_path)
    first_version(files)
    batch = BatchCommit.begin(files, 0, lambda: at(1))
    assert batch is not None
    assert batch.state is BatchState.OPEN
    with pytest.raises(AssertionError):
        batch.publish()
    batch.commit_tables(list(task_rows(files, batch, "m0")), here)
    with pytest.raises(AssertionError, match="the table of results is not committed"):
        batch.publish()
    with pytest.raises(AssertionError):
        batch.commit_tables([], here)
    commit_result(batch)
    batch.publish()
    assert batch.state is BatchState.PUBLISHED
    with pytest.raises(AssertionError):
        batch.publish()


def test_old_versions_and_small_files_do_not_pile_up(tmp_path: Path) -> None:
    """I11: files are compacted, and old versions deleted, with those of their tables."""
    files = files_in(tmp_path)
    first_version(files)
    count = 2 * KEEP
    for batch_id in range(count):
        run_batch(files, batch_id)
    files.hold(KEEP - 5)
    clean(files, count)
    assert versions.numbers(files.versions) == list(range(KEEP - 5, count + 1))
    table = files.inputs.sources[KEYED_NUMBER].directory
    assert commits.versions(table)[0] == KEEP - 5
    assert len(files.latest().appended[PLAIN_NUMBER].files) < 2 * COMPACT_COUNT
    expected = sorted(f"m{number}" for number in range(count))
    assert content(files) == (expected, expected, [count])

"""Rows that tasks hand on, through Arrow and back."""

from hypothesis import given
from hypothesis import strategies as st

from quipu.pipeline.execution.task_rows import (
    COLUMNS,
    SCHEMA,
    TaskRow,
    TaskRowKind,
    from_batches,
    json_row,
    to_batches,
)

ROWS = st.lists(st.builds(TaskRow, st.integers(0, 100), st.integers(-1, 100),
                          st.sampled_from(TaskRowKind), st.binary(max_size=50)))


@given(ROWS)
def test_rows_come_back_as_they_were(rows: list[TaskRow]) -> None:
    """I13: one batch each, because each may be large."""
    batches = list(to_batches(rows))
    assert all(batch.schema == SCHEMA and batch.num_rows == 1 for batch in batches)
    assert list(from_batches(batches)) == rows


def test_values_travel_as_json_and_spark_knows_the_columns() -> None:
    """I13: names of files, counts and states of buckets."""
    assert json_row(1, -1, TaskRowKind.COUNTS, {"messages": 3}).json == {"messages": 3}
    assert [each.split()[0] for each in COLUMNS.split(", ")] == SCHEMA.names

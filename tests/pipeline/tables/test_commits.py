"""Versions: made once, by one driver; and what is kept of them."""

from pathlib import Path

import pytest

from quipu.pipeline.tables import commits, reading
from quipu.pipeline.tables.commits import VersionTaken
from quipu.pipeline.tables.contract import ShapeDiffers, TableShape, UnknownVersion
from quipu.pipeline.tables.store import merge_events
from tests.pipeline.tables.table_maker import (
    COUNTS,
    LATEST,
    ORDERED,
    SECRET,
    STRICT,
    Event,
    Table,
    events_batch,
)


@pytest.mark.parametrize("events", [LATEST, STRICT, ORDERED, COUNTS],
                         ids=["latest", "strict", "ordered", "counts"])
def test_a_shape_survives_its_file(events: object, tmp_path: Path) -> None:
    made = Table(tmp_path, events).shape  # type: ignore[arg-type] # from the list above

    assert commits.open_shape(tmp_path) == made == TableShape.from_json(made.to_json())


def test_a_table_keeps_the_secret_and_the_buckets_it_was_made_with(tmp_path: Path) -> None:
    """Where keys are must not change."""
    Table(tmp_path, LATEST, buckets=3)
    again = commits.create(tmp_path, LATEST, buckets=8, secret=bytes(16))
    assert (again.buckets, again.secret) == (3, SECRET)
    with pytest.raises(ShapeDiffers, match=r"table\.json"):
        commits.create(tmp_path, COUNTS, buckets=3, secret=SECRET)


def test_a_version_is_made_once(tmp_path: Path) -> None:
    """I11: a batch that is tried again after its commit changes nothing."""
    table = Table(tmp_path, LATEST)
    first = table.merge(4, [[Event("a", value=1)]])
    assert commits.begin(tmp_path, 4) is None
    assert commits.begin(tmp_path, 3) is None
    assert table.merge(4, [[Event("a", value=2)]]) == first
    assert commits.latest(tmp_path) == first
    assert table.rows(4) == {("a", 1): 1}


def test_of_two_drivers_one_is_told(tmp_path: Path) -> None:
    table = Table(tmp_path, LATEST, buckets=1)
    base = commits.begin(tmp_path, 0)
    assert base is not None

    def state(value: int) -> object:
        import pyarrow as pa

        events = pa.Table.from_batches([events_batch(LATEST, [Event("a", value=value)])])
        return merge_events(tmp_path, table.shape, base.bucket(0), events, 0)

    commits.commit(tmp_path, base, 0, [state(1)])  # type: ignore[list-item] # a BucketState
    commits.commit(tmp_path, base, 0, [state(1)])  # type: ignore[list-item] # the same: a retry
    with pytest.raises(VersionTaken, match="second driver"):
        commits.commit(tmp_path, base, 0, [state(2)])  # type: ignore[list-item] # another
    assert table.rows(0) == {("a", 1): 1}


def test_an_empty_batch_is_a_version(tmp_path: Path) -> None:
    table = Table(tmp_path, LATEST)
    table.merge(0, [[Event("a")]])
    made = table.merge(1, [])

    assert (made.version, made.base, made.rows) == (1, 0, 1)
    assert table.changes(0, 1) == {}


def test_versions_that_are_not_kept_are_unknown(tmp_path: Path) -> None:
    table = Table(tmp_path, LATEST)
    for version in range(5):
        table.merge(version, [[Event("a", value=version)]])
    table.clean(2)
    assert commits.versions(tmp_path) == [3, 4]
    assert table.changes(2, 3) == {("a", 2): -1, ("a", 3): 1}
    for since, until in ((1, 4), (2, 9)):
        with pytest.raises(UnknownVersion):
            reading.bucket_histories(tmp_path, since, until)
    with pytest.raises(UnknownVersion, match="version 2 is not kept"):
        commits.manifest(tmp_path, 2)


def test_cleaning_takes_what_no_version_needs(tmp_path: Path) -> None:
    table = Table(tmp_path, LATEST)
    for version in range(6):
        table.merge(version, [[Event(key, value=version) for key in "abcdef"]])
    assert table.clean(1) > 0
    assert table.files() == commits.latest(tmp_path).files()
    assert table.clean(1) == 0

    ours = tmp_path / "files" / "00000000000000000003-00000-abc.data.77.tmp"
    later = tmp_path / "files" / "00000000000000000006-00000-abc.data"
    foreign = tmp_path / "files" / "notes.txt"
    for path in (ours, later, foreign):
        path.touch()
    table.clean(1)
    assert [path.exists() for path in (ours, later, foreign)] == [False, True, True]


def test_columns_are_read_by_name_and_in_order(tmp_path: Path) -> None:
    table = Table(tmp_path, STRICT, buckets=1)
    state = table.merge(0, [[Event("a", value=1)]]).bucket(0)
    for wanted in (["value"], ["value", "key"]):
        (batch,) = reading.rows(tmp_path, table.shape, state, wanted)
        assert batch.schema.names == wanted
        (batch,) = reading.changes(tmp_path, table.shape, [state], wanted)
        assert batch.schema.names == [*wanted, "#diff"]
    with pytest.raises(ValueError, match="no column"):
        list(reading.rows(tmp_path, table.shape, state, []))


def test_a_timed_table_has_one_bucket() -> None:
    from dataclasses import replace

    with pytest.raises(ValueError, match="one bucket"):
        TableShape(replace(COUNTS, timed=True), 2, SECRET)

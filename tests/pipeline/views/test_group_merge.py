"""Tables by group: whatever comes and goes, groups are what their parts add up to."""

import math
import random
from pathlib import Path

import pyarrow as pa
import pytest

from quipu.pipeline.tables import commits
from quipu.pipeline.tables.commits import TableAt
from quipu.pipeline.tables.reading import rows
from quipu.pipeline.views.aggregation import Aggregation, PartialAggregate, group_shape
from quipu.pipeline.views.group_merge import group_events, merge_groups
from quipu.pipeline.views.result_merge import pack_result

SUMS = Aggregation("", ("#g0",), (PartialAggregate("#rows", ""), PartialAggregate("#a1", "")), ())
BOUNDS = Aggregation(
    "", ("#g0",), (PartialAggregate("#rows", ""), PartialAggregate("#a1", "", "min"),
    PartialAggregate("#a2", "", "max")), ())
NUMBERS = pa.schema([("#g0", pa.string()), ("#rows", pa.int64()), ("#a1", pa.int64())])
FLOATS = pa.schema([("#g0", pa.string()), ("#rows", pa.int64()), ("#a1", pa.float64()),
                    ("#a2", pa.float64())])

Parts = list[tuple[object, ...]]


class Groups:
    """A table by group."""

    def __init__(self, directory: Path, aggregation: Aggregation, schema: pa.Schema) -> None:
        self.directory = directory
        self.aggregation = aggregation
        self.schema = schema
        self.shape = commits.create(
            directory, group_shape(schema), buckets=3, secret=b"0123456789abcdef")
        self.version = 0

    def add(self, parts: Parts) -> None:
        """One batch, which several tasks have aggregated."""
        manifest = commits.begin(self.directory, self.version)
        assert manifest is not None
        base = TableAt(self.directory, self.shape, manifest)
        parcels: dict[int, list[bytes]] = {}
        for share in (parts[::2], parts[1::2]):
            names = self.schema.names
            given = [pa.RecordBatch.from_pylist(
                [dict(zip(names, each, strict=True)) for each in share], self.schema)]
            for parcel in pack_result(base, group_events(self.aggregation), given):
                parcels.setdefault(parcel.bucket, []).append(parcel.data)
        merge = merge_groups(self.aggregation)
        states = [merge(base, bucket, those, self.version) for bucket, those in parcels.items()]
        commits.commit(self.directory, manifest, self.version, states)
        self.version += 1

    def rows(self) -> dict[object, tuple[object, ...]]:
        found = [tuple(row.values()) for state in commits.latest(self.directory).buckets
                 for batch in rows(self.directory, self.shape, state) for row in batch.to_pylist()]
        assert len({row[0] for row in found}) == len(found)
        return {row[0]: row[1:] for row in found}


def test_groups_are_the_sums_of_their_parts(tmp_path: Path) -> None:
    """I13: over many batches, many parts of a group in one; a group without rows is gone."""
    groups = Groups(tmp_path, SUMS, NUMBERS)
    rng = random.Random(5)
    model: dict[object, tuple[int, int]] = {}
    for _ in range(30):
        parts = []
        for _ in range(rng.randrange(1, 12)):
            group = rng.choice([None, "", *"abcdefgh"])
            count, total = model.get(group, (0, 0))
            added = rng.choice([1, 2, -count])
            price = rng.randrange(-9, 9) if count + added else -total
            model[group] = count + added, total + price
            parts.append((group, added, price))
        groups.add(parts)
        model = {group: those for group, those in model.items() if those[0]}
        assert groups.rows() == model


def test_a_sum_that_is_too_large_is_an_error(tmp_path: Path) -> None:
    """I13: it is not wrapped around in silence."""
    groups = Groups(tmp_path, SUMS, NUMBERS)
    groups.add([("a", 1, 2**63 - 1)])

    with pytest.raises(pa.ArrowInvalid):
        groups.add([("a", 1, 1)])
    assert groups.rows() == {"a": (1, 2**63 - 1)}


def test_least_and_greatest_are_those_of_spark(tmp_path: Path) -> None:
    """I13: NaN is greater than every number, and NULL is no value."""
    nan = math.nan
    groups = Groups(tmp_path, BOUNDS, FLOATS)
    groups.add([("a", 1, 2.0, 2.0), ("b", 1, nan, nan), ("c", 1, None, None), ("d", 1, nan, nan)])
    groups.add([("a", 1, nan, nan), ("b", 1, 1.0, 1.0), ("c", 1, 5.0, 5.0), ("d", 1, None, None)])
    groups.add([("a", 1, -1.0, -1.0)])

    assert {group: tuple(map(str, row)) for group, row in groups.rows().items()} == {
        "a": ("3", "-1.0", "nan"), "b": ("2", "1.0", "nan"), "c": ("2", "5.0", "5.0"),
        "d": ("2", "nan", "nan")}

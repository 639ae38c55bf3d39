"""What a broker says of objects is checked before anything is read from them."""

from uuid import UUID

import pytest

from quipu.client.diskless_log import RUNS_MAX, ObjectRun, _taken
from quipu.client.errors import BrokerRefused
from quipu.client.ranges import Range
from quipu.model.errors import Code, MalformedBytes
from quipu.wire.messages.k10004_describe_diskless_runs import (
    DescribedDisklessPartition,
    DescribedDisklessTopic,
    DescribeDisklessRunsResponse,
    DescribedRun,
)

WANTED = Range("orders", 2, 5, 100)
TOPIC_ID = UUID(int=3)


def run(first: int, end: int, **other: object) -> DescribedRun:
    made = DescribedRun(key="objects/a", position=8, size=100, batch_count=1, base_offset=first,
                        end_offset=end)
    for name, value in other.items():
        setattr(made, name, value)
    return made


def response(*runs: DescribedRun, url: str | None = "s3://b", **other: object
             ) -> DescribeDisklessRunsResponse:
    part = DescribedDisklessPartition(
        partition_index=2, is_diskless=True, log_start_offset=0, diskless_start_offset=3,
        high_watermark=200, runs=list(runs))
    for name, value in other.items():
        setattr(part, name, value)
    return DescribeDisklessRunsResponse(storage_url=url, topics=[
        DescribedDisklessTopic(name="orders", topic_id=TOPIC_ID, partitions=[part])])


def test_runs_follow_each_other() -> None:
    """I17: client.D1: from the run that holds the first offset on."""
    part = _taken(response(run(3, 9), run(9, 50)), WANTED)

    assert part.runs == (ObjectRun("objects/a", 8, 100, 1, 3, 9),
                         ObjectRun("objects/a", 8, 100, 1, 9, 50))
    assert (part.topic_id, part.log_start, part.diskless_start, part.high_watermark) == (
        TOPIC_ID, 0, 3, 200)
    assert _taken(response(), WANTED).runs == ()


WRONG = {
    "a gap": [run(3, 9), run(10, 50)],
    "an overlap": [run(3, 9), run(8, 50)],
    "not the first offset": [run(6, 9)],
    "all before it": [run(0, 5)],
    "backwards": [run(3, 9), run(9, 9)],
    "beyond the range": [run(3, 100), run(100, 120)],
    "no key": [run(3, 9, key="")],
    "a long key": [run(3, 9, key="k" * 2000)],
    "a negative position": [run(3, 9, position=-1)],
    "no bytes": [run(3, 9, size=0)],
    "too many bytes": [run(3, 9, size=1 << 40)],
    "no batches": [run(3, 9, batch_count=0)],
    "too many": [run(5 + i, 6 + i) for i in range(RUNS_MAX + 1)],
}


@pytest.mark.parametrize("runs", WRONG.values(), ids=WRONG)
def test_wrong_runs_are_an_error(runs: list[DescribedRun]) -> None:
    """I17: client.D2: nothing is read that is not what was asked for."""
    with pytest.raises(MalformedBytes):
        _taken(response(*runs), WANTED._replace(end=90) if len(runs) <= 2 else WANTED)


@pytest.mark.parametrize("other", [
    {"is_diskless": False}, {"log_start_offset": 4}, {"diskless_start_offset": 300},
    {"high_watermark": 1 << 63}])
def test_wrong_offsets_are_an_error(other: dict[str, object]) -> None:
    """I17: client.D2: the offsets of a partition are in order."""
    with pytest.raises(MalformedBytes):
        _taken(response(**other), WANTED)


def test_errors_and_partitions_that_are_left_out() -> None:
    """I17: the error of a partition is raised, and so is that it is missing."""
    with pytest.raises(BrokerRefused):
        _taken(response(error_code=Code.UNKNOWN_TOPIC_OR_PARTITION), WANTED)
    with pytest.raises(BrokerRefused):
        _taken(response(), WANTED._replace(partition=1))
    with pytest.raises(MalformedBytes):
        _taken(response(url="x" * 10_000), WANTED)

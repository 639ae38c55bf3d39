"""`quipu diskless tier` on a cluster of processes makes the bytes that a broker makes."""

from pathlib import Path

import pytest

from tests.harness.spark_cluster import SparkCluster
from tests.pipeline.spark.test_diskless_tiering import (
    in_world,
    moved_inline,
    read_all,
    run_command,
)

SETTINGS = ("--set", "spark.executor.memory=512m", "--set",
            "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1")


@pytest.mark.timeout(1_800)  # waits are by progress; this is for what hangs
def test_two_workers_make_the_segments_of_a_broker(tmp_path: Path) -> None:
    """D8: inline and on a master with two workers, byte for byte the same, names too."""
    expected = moved_inline(tmp_path / "inline", objects=12)
    world = in_world(tmp_path / "job", lambda each: each.fill(12))
    before = read_all(tmp_path / "job")

    with SparkCluster(tmp_path / "spark", workers=2) as cluster:
        cluster.await_workers()
        report = run_command(world.command("--master", cluster.master, *SETTINGS))

    assert report["errors"] == report["busy"] == []
    assert report["segments"] == len(expected)
    assert world.segment_bytes() == expected
    assert read_all(tmp_path / "job") == before

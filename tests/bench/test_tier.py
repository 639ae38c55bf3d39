"""The line P11 and the line on compaction, with little data, and what they are made of."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from quipu.bench import compaction, tier
from quipu.bench.closed_loop import Window
from quipu.bench.errors import BenchError
from quipu.bench.lines import Series, median_ratio
from quipu.bench.measured import Measured
from quipu.bench.raw_gets import ranges, run_gets
from quipu.bench.s3_server import s3_server
from quipu.bench.target import Target
from quipu.model.settings_types import Address
from quipu.runtime.objects.store import ByteRange, ObjectInfo

NO_TARGET = Target(Address("127.0.0.1", 1), None, None, is_temporary=True)


def measured(size: int) -> Measured:
    return Measured(seconds=1.0, requests=1, records=1, size=size, latency=None)


def test_neighbouring_rounds_are_compared() -> None:
    """K2: the median of the ratios, so that one bad round does not count."""
    found, limit = Series([*map(measured, (10, 1, 90))]), Series([*map(measured, (20, 100, 100))])
    assert median_ratio(found, limit) == 0.5
    assert median_ratio(Series(), Series()) is None


def test_p11_with_little_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """K2: every byte comes from the tier, and both ratios have a value."""
    for name, value in {"SEGMENT_SIZE": 2 << 20, "ROUNDS": 1, "SECONDS": 0.2}.items():
        monkeypatch.setattr(tier, name, value)
    line = tier.p11_directory(NO_TARGET, "")
    assert line.broker.best.size > 0
    assert [each.value is not None and each.value > 0 for each in line.ratios] == [True, True]
    assert line.ratios[0].number == "P11"


def test_a_consumer_of_what_only_the_tier_has() -> None:
    """K9: `quipu bench consume --tiered` starts a node with a tier, and moves the topic there."""
    done = subprocess.run(
        [sys.executable, "-m", "quipu", "bench", "consume", "--tiered", "--json", "--seconds",
         "0.3", "--preload", str(4 << 20), "--config", f"segment.bytes={1 << 20}"],
        capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["load"]["tiered"]
    assert found["load"]["configs"]["remote.storage.enable"] == "true"
    assert found["broker"]["broker"]["megabytes_per_second"] > 0
    assert [each["number"] for each in found["ratios"]] == ["", ""]


def test_raw_gets_of_an_s3_server(tmp_path: Path) -> None:
    """K2: an empty bucket is an error; the files of the server are removed."""
    with s3_server(str(tmp_path)) as url:
        assert url is not None
        with pytest.raises(BenchError, match="no objects in s3://bench"):
            run_gets(url, 100, 2, Window(seconds=0.1))
    assert list(tmp_path.iterdir()) == []


def test_raw_gets_of_a_directory(tmp_path: Path) -> None:
    """K2: all ranges of all objects, in order; none is larger than a chunk."""
    (tmp_path / "a").write_bytes(bytes(250))
    (tmp_path / "b").write_bytes(bytes(100))
    objects = (ObjectInfo("a", 250, "", 0), ObjectInfo("b", 100, "", 0))
    assert list(ranges(objects, 100)) == [
        ("a", ByteRange(0, 100)), ("a", ByteRange(100, 200)), ("a", ByteRange(200, 250)),
        ("b", ByteRange(0, 100))]
    found = run_gets(tmp_path.as_uri(), 100, 2, Window(seconds=0.1, warmup_seconds=0.0))
    assert 0 < found.size <= 100 * found.requests
    assert found.latency is not None


def test_a_pass_is_stopped_and_goes_on() -> None:
    """K2: the process of a pass is found by its command, stopped, and continued."""
    assert compaction.find_child(os.getpid()) is None
    name = compaction.CHILD_MODULE.decode()
    child = subprocess.Popen([sys.executable, "-c", "input()", name], stdin=subprocess.PIPE)
    try:
        assert compaction.await_child(os.getpid()) == child.pid
        with compaction.stopped(child.pid):
            pid, status = os.waitpid(child.pid, os.WUNTRACED)
            assert (pid, os.WIFSTOPPED(status)) == (child.pid, True)
        assert compaction.cleaner_cpu_seconds(os.getpid()) >= 0.0
    finally:
        child.kill()
        child.communicate()
    with compaction.stopped(child.pid):  # it has ended
        pass

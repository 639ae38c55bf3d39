"""Diskless topics: the lines P9 and P10, `quipu bench diskless`, and what they are made of."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from quipu.bench.closed_loop import Window
from quipu.bench.diskless import bare_commits, commits, produce
from quipu.bench.diskless.command import diskless
from quipu.bench.diskless.costs import per_gib
from quipu.bench.diskless.nodes import Counted
from quipu.bench.diskless.raw_puts import run_puts
from quipu.bench.errors import BenchError
from quipu.bench.s3_server import s3_server
from quipu.bench.target import Target
from quipu.model.settings_types import Address

NO_TARGET = Target(Address("127.0.0.1", 1), None, None, is_temporary=True)


def bench(*arguments: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-m", "quipu", "bench", *arguments, "--json"], capture_output=True,
        text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_p9_with_little_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """K2: a node and raw puts store objects of the same size; one connection is compared too."""
    for name, value in {"ROUNDS": 1, "SECONDS": 0.3, "SIZE_MAX": 8 << 20}.items():
        monkeypatch.setattr(produce, name, value)
    line = produce.p9_directory(NO_TARGET, str(tmp_path))
    assert line.broker.best.size > 0
    assert [each.number for each in line.ratios] == ["P9", ""]
    assert all(each.value for each in line.ratios)
    assert list(tmp_path.iterdir()) == []


def test_p10_with_few_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """K2: every commit has ten batches, and bare transactions write the same rows."""
    for name, value in {"ROUNDS": 1, "SECONDS": 0.2}.items():
        monkeypatch.setattr(commits, name, value)
    line = commits.p10_one(NO_TARGET, "")
    assert line is not None
    commit, bare = line.broker.best, line.limit.best
    assert commit.records == commit.requests * bare_commits.BATCHES > 0
    assert bare.records == bare.requests * bare_commits.BATCHES > 0
    assert line.ratios[0].value


def test_raw_puts_leave_nothing_behind(tmp_path: Path) -> None:
    """K2: whole objects are counted, in a directory and in an S3 server."""
    window = Window(seconds=0.2, warmup_seconds=0.05, size_max=1 << 20)
    with s3_server(str(tmp_path)) as s3_url:
        assert s3_url is not None
        for url in (tmp_path.as_uri(), s3_url):
            found = run_puts(url, 1000, 2, window)
            assert found.size == found.requests * 1000 > 0
    assert not list(tmp_path.rglob("puts-*"))


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_a_temporary_node_has_diskless_topics_if_the_topic_needs_them(command: str) -> None:
    """K9: `--config diskless.enable=true` is enough; without --bootstrap a node is started so."""
    found = bench(command, "--seconds", "0.3", "--config", "diskless.enable=true",
                  *(["--preload", str(1 << 20)] if command == "consume" else []))
    assert found["load"]["configs"] == {"diskless.enable": "true"}  # type: ignore[index]
    broker = found["broker"]["broker"]  # type: ignore[index]
    assert broker["megabytes_per_second"] > 0


def test_requests_are_counted_for_each_gib() -> None:
    """D36: puts and commits per GiB produced, gets per GiB consumed; what did not occur is left."""
    counted = Counted(batch_bytes=1 << 29, puts=64, put_bytes=1 << 29, commits=60,
                      read_bytes=1 << 30, gets=7, get_bytes=1 << 29)
    assert per_gib(counted) == {
        "puts/GiB": 128.0, "put bytes/byte": 1.0, "gets/GiB": 7.0, "get bytes/byte": 0.5,
        "commits/GiB": 120.0, "finds/GiB": None}
    assert set(per_gib(Counted()).values()) == {None}


def test_counters_come_from_the_metrics_of_a_node() -> None:
    """K2: other metrics do not matter; one that is missing is an error."""
    text = "\n".join(["# HELP x", "quipu_other 1", *(
        f"quipu_diskless_{name}_total {number}.0" for number, name in enumerate(Counted._fields))])
    found = Counted.of(text)
    assert found == Counted(*range(len(Counted._fields)))
    assert found.since(found) == Counted()
    with pytest.raises(BenchError, match="quipu_diskless_batch_bytes_total"):
        Counted.of("")


def test_the_whole_command() -> None:
    """D36: rows by flush interval, of producing and of consuming, with requests per GiB."""
    found = bench("diskless", "--seconds", "0.3", "--intervals", "10")
    rows = {row["what"]: row for row in found["rows"]}  # type: ignore[attr-defined]
    assert len(rows) == 7
    assert rows["200 records/s, flush after 10 ms"]["p99 us"] > 0
    assert rows["produce, 1 connection"]["puts/GiB"] > 0
    assert rows["produce, 1 connection"]["commits/GiB"] > 0
    assert rows["consume old records"]["gets/GiB"] > 0
    assert rows["consume cached records"]["gets/GiB"] is None
    assert all(each["value"] for each in found["ratios"])  # type: ignore[attr-defined]


def test_wrong_options_of_the_command() -> None:
    """K9: they are named before anything is started."""
    with pytest.raises(BenchError, match="--intervals '10,x'"):
        diskless(intervals="10,x")
    with pytest.raises(BenchError, match="give one of them"):
        diskless(s3=True, store="s3://bucket")

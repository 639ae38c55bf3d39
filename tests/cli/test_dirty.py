"""`quipu consume --dirty`: one node's own view, without a client library's opinion on it."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.command import Result, run_quipu
from tests.harness.node import RunningNode, environment

pytestmark = pytest.mark.xdist_group("cli-dirty")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with RunningNode(tmp_path_factory.mktemp("dirty") / "data") as running:
        assert run_quipu(
            "topic", "create", "t", "--partitions", "2", "-b", running.bootstrap).code == 0
        lines = "".join(f"k{number % 2}:{number}\n" for number in range(100))
        done = run_quipu("produce", "t", "-k", ":", "--header", "h=1", "-b", running.bootstrap,
                         stdin=lines)
        assert done.code == 0, done.err
        yield running


def consume(node: RunningNode, *words: str) -> Result:
    return run_quipu("consume", "t", "--exit", *words, "--bootstrap", node.bootstrap)


def test_a_dirty_read_shows_what_a_clean_one_does_once_all_is_committed(node: RunningNode) -> None:
    """V3: every record, with all that belongs to it."""
    clean, dirty = (consume(node, "--json", *words) for words in ([], ["--dirty"]))
    assert dirty.code == 0, dirty.err
    assert sorted(dirty.out.splitlines()) == sorted(clean.out.splitlines())
    assert len(dirty.out.splitlines()) == 100


def test_positions_counts_and_partitions_mean_the_same(node: RunningNode) -> None:
    """V3: --from, --to, --count and --partition, by offset and by time."""
    rows = [json.loads(line) for line in consume(node, "--json", "--dirty").out.splitlines()]
    busy = rows[0]["partition"]
    mine = [row["value"] for row in rows if row["partition"] == busy]
    only = ("--dirty", "--partition", str(busy))
    assert consume(node, *only, "--from", "3", "--to", "6").out.split() == mine[3:6]
    assert consume(node, *only, "--from", "-2").out.split() == mine[-2:]
    assert consume(node, *only, "--count", "4").out.split() == mine[:4]
    assert consume(node, *only, "--from", "1h").out.split() == mine
    assert consume(node, *only, "--from", "end").out == ""
    assert consume(node, *only, "--from", "2000-01-01", "--count", "1").out.split() == mine[:1]


def test_following_waits_for_more(node: RunningNode) -> None:
    """V3: without --exit new records are shown as they come."""
    assert run_quipu("topic", "create", "live", "-b", node.bootstrap).code == 0
    with subprocess.Popen(
        [sys.executable, "-m", "quipu", "consume", "live", "--dirty", "-b", node.bootstrap],
        stdout=subprocess.PIPE, text=True, env=environment(),
    ) as reader:
        time.sleep(0.5)
        run_quipu("produce", "live", "-b", node.bootstrap, stdin="new\n")
        assert reader.stdout is not None
        assert reader.stdout.readline() == "new\n"
        reader.send_signal(signal.SIGINT)
        assert reader.wait(20) == 130


def test_mistakes_are_one_line(node: RunningNode, tmp_path: Path) -> None:
    """K9: what cannot be read is told, with what to do."""
    for words, message in [
        (("consume", "t", "--dirty", "--partition", "7"), "t has partitions 0 to 1, and no 7"),
        (("consume", "tt", "--dirty"), "there is no topic tt"),
        (("consume", "t", "--dirty", "--group", "g"), "leave out --dirty or --group"),
    ]:
        done = run_quipu(*words, "--exit", "--bootstrap", node.bootstrap)
        assert done.code in (1, 2), words
        assert message in done.err
    assert "no broker responds at" in run_quipu("consume", "t", "--dirty", "-b", "127.0.0.1:1").err

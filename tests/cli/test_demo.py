"""`make demo` keeps its promises."""

import subprocess
import sys

import pytest

from tests.harness.node import REPOSITORY, environment

DEMO_SECONDS_MAX = 240.0  # a minute and a half where nobody else is busy


@pytest.mark.xdist_group("spark")  # where other tests start Spark: one at a time is enough
@pytest.mark.timeout(300)
def test_the_demo_ends_by_itself_and_tells_the_truth() -> None:
    """K9, T9, T12, I7, I13, I20, R13: a node, records, a group, kill -9, a look into the log,
    metrics; a topic that outgrows its disk and is read back; sources with metadata, a view of
    both, its changes, its lag.
    """
    done = subprocess.run(
        [sys.executable, "tools/demo.py"],
        cwd=REPOSITORY, env=environment(), capture_output=True, text=True, check=False,
        timeout=DEMO_SECONDS_MAX,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "All of it held." in done.stdout
    for word in ("quipu ready 127.0.0.1:", "checkpoint", "controller", "zstd", "quipu_ready 1",
                 "from the tier.", "are intact; nothing is wrong",
                 "ENVELOPE DEBEZIUM;", "-1  Grace", "Nothing is waiting.", "catalog.json"):
        assert word in done.stdout, word

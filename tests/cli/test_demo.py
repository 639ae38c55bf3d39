"""`make demo` keeps its promises."""

import subprocess
import sys
import time

from tests.harness.node import REPOSITORY, environment

DEMO_SECONDS_MAX = 60.0


def test_the_demo_ends_by_itself_and_tells_the_truth() -> None:
    """K9, T9, T12: a node, records, a group, kill -9, a look into the log, metrics; in a minute."""
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "tools/demo.py"],
        cwd=REPOSITORY, env=environment(), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "All of it held." in done.stdout
    for word in ("quipu ready 127.0.0.1:", "checkpoint", "controller", "zstd", "quipu_ready 1"):
        assert word in done.stdout, word
    assert time.monotonic() - begun < DEMO_SECONDS_MAX

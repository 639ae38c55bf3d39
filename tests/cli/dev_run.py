"""One run of `quipu dev`: what it says, its nodes, and that nothing of it is left at the end."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.harness.command import run_quipu
from tests.harness.node import environment

WAIT_SECONDS_MAX = 60.0
QUICK = [word for pair in (
    "broker.heartbeat.interval.ms=100", "broker.session.timeout.ms=1500",
    "controller.quorum.election.timeout.ms=400", "controller.quorum.heartbeat.interval.ms=80",
) for word in ("--set", pair)]


class Dev:
    """One run of the command, with what it says as it goes."""

    def __init__(self, directory: Path, *words: str) -> None:
        self.directory = directory
        self.err_path = directory.with_name(f"{directory.name}.err")
        with self.err_path.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "quipu", "dev", "--dir", str(directory), *QUICK, *words],
                stdout=subprocess.PIPE, stderr=err, text=True, env=environment())
        self.rows: dict[str, dict[str, Any]] = {}

    @property
    def err(self) -> str:
        return self.err_path.read_text()

    def await_rows(self, count: int) -> None:
        """What it prints when the cluster is up."""
        assert self.process.stdout is not None
        for _ in range(count):
            line = self.process.stdout.readline()
            assert line, self.err
            row = json.loads(line)
            self.rows[row["node"]] = row

    def await_err(self, pattern: str) -> None:
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not re.search(pattern, self.err):
            assert time.monotonic() < deadline, self.err
            time.sleep(0.05)

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(WAIT_SECONDS_MAX)

    @property
    def bootstrap(self) -> str:
        return ",".join(row["address"] for row in self.rows.values())

    def quipu(self, *words: str, stdin: str = "") -> str:
        done = run_quipu(*words, "--bootstrap", self.bootstrap, stdin=stdin)
        assert done.code == 0, done.err
        return done.out


@contextmanager
def running(directory: Path, *words: str, nodes: int) -> Iterator[Dev]:
    """A cluster that is up; ended in any case, with all its processes."""
    dev = Dev(directory, *words, "--json")
    try:
        dev.await_rows(nodes)
        yield dev
    finally:
        if dev.process.poll() is None:
            dev.end(signal.SIGTERM)
        assert dev.process.stdout is not None
        dev.process.stdout.close()
        for row in dev.rows.values():
            assert not lives(row["pid"])


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True

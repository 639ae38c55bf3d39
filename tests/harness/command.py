"""Runs the `quipu` command as a user does; returns its exit code, output and errors."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.harness.node import environment

COMMAND_SECONDS_MAX = 60.0


class Result(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


def run_quipu(
    *words: str,
    stdin: str | bytes = b"",
    cwd: Path | None = None,
    variables: Mapping[str, str] | None = None,
    python: tuple[str, ...] = (),
) -> Result:
    """Run `quipu WORDS`; the test fails if it takes more than `COMMAND_SECONDS_MAX`."""
    done = subprocess.run(
        [sys.executable, *python, "-m", "quipu", *words],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        timeout=COMMAND_SECONDS_MAX,
        check=False,
        cwd=cwd,
        env={**environment(), **(variables or {})},
    )
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

"""Runs Java programs one after the other in one JVM, as java/Driver.java does: starts are slow.

    driver = JavaDriver(classes)
    result = driver.run([jars], "org.apache.kafka.tools.TopicCommand", "--list", ...)

A program that does not end in time fails the test, with what its threads do; the JVM is killed, and
the next program gets a new one.  The JVM ends with the thread that started it.
"""

import base64
import contextlib
import os
import select
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.harness.node import environment
from tests.harness.processes import end_with_parent

SECONDS_MAX = 120.0  # of one program
QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx512m",
               "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
               # for the 2.x clients: Java's own packages are closed to them from 17 on
               "--add-opens=java.base/java.nio=ALL-UNNAMED")
DUMP_SECONDS_MAX = 20.0


class ProgramResult(NamedTuple):
    """The exit code of a program, and what it printed."""

    code: int
    out: str
    err: str


class JavaDriver:
    """A JVM that runs programs, started with the first of them."""

    def __init__(self, classes: Path) -> None:
        self._classes = classes
        self._process: subprocess.Popen[bytes] | None = None

    def run(
        self, path: Sequence[Path], name: str, *words: str, stdin: str = "",
        seconds_max: float = SECONDS_MAX,
    ) -> ProgramResult:
        """Run the main method of a class; its class path: our own, and folders of jars."""
        process = self._start()
        where = os.pathsep.join(map(str, [*path, self._classes]))
        line = b" ".join(base64.b64encode(word.encode()) for word in (where, name, stdin, *words))
        assert process.stdin is not None
        process.stdin.write(line + b"\n")
        process.stdin.flush()
        code, out, err = self._answer(process, f"{name} {words}", seconds_max).split(b" ")
        return ProgramResult(int(code), *(base64.b64decode(text).decode(errors="replace")
                                          for text in (out, err)))

    def _answer(self, process: subprocess.Popen[bytes], what: str, seconds_max: float) -> bytes:
        assert process.stdout is not None
        found = b""
        deadline = time.monotonic() + seconds_max
        while not found.endswith(b"\n"):
            wait = deadline - time.monotonic()
            if wait <= 0 or not select.select([process.stdout], [], [], wait)[0]:
                shown = _threads(process.pid)
                self.end()
                raise AssertionError(f"not within {seconds_max} s: {what}\n{shown}")
            more = os.read(process.stdout.fileno(), 1 << 16)
            assert more, f"the JVM ended while it ran {what}"
            found += more
        return found.rstrip(b"\n")

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                ["java", *QUICK_START, "-cp", str(self._classes), "Driver"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                env=environment(), bufsize=0,
                preexec_fn=end_with_parent)  # noqa: PLW1509 only this
        return self._process

    def end(self) -> None:
        """Kill the JVM, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(OSError):
                    assert stream is not None
                    stream.close()
            self._process = None


def _threads(pid: int) -> str:
    """What the threads of a JVM do; empty if it does not say so."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(["jstack", str(pid)], capture_output=True, text=True, check=False,
                              timeout=DUMP_SECONDS_MAX).stdout
    return ""

"""A real node in a process of its own, as a user starts it, for tests that need all of it.

    with RunningNode(tmp_path / "data") as node:
        client = Producer({"bootstrap.servers": node.bootstrap})
        ...
        node.kill()  # SIGKILL: no chance to tidy up
        node.start()  # same directory, same port

The node listens on free loopback ports.  What it logs is kept across restarts in `log_path`, and is
part of the message of every failure.  Leaving the `with` block ends the process whatever happened.
"""

import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.harness.ports import hold_port

REPOSITORY = Path(__file__).resolve().parents[2]
START_SECONDS_MAX = 30.0  # far above the aim of one second: test machines are busy
STOP_SECONDS_MAX = 30.0
LOG_TAIL_SIZE = 8_000  # bytes of log shown with a failure

_READY = re.compile(r"quipu ready (?P<host>\S+):(?P<port>\d+)\n")
_HTTP = re.compile(r"http[\"=: ]+(?P<address>[\d.]+:\d+)")


def environment() -> dict[str, str]:
    """This process's variables, with the checkout importable.

    Left out are `QUIPU_` settings, and whatever keeps Python from caching what it compiles: the
    node of a user compiles its modules once, not at every start.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("QUIPU_") and name != "PYTHONDONTWRITEBYTECODE"
    }
    source = str(REPOSITORY / "src")
    path = os.environ.get("PYTHONPATH")
    return {**kept, "PYTHONPATH": f"{source}{os.pathsep}{path}" if path else source}


class NodeFailed(AssertionError):
    """The node did not do what it was told; the message ends with what it logged."""


class RunningNode:
    """One node: its process, its directory, its addresses."""

    def __init__(
        self,
        directory: Path,
        *,
        settings: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        self.directory = Path(directory)
        self.log_path = self.directory.with_name(f"{self.directory.name}.stderr")
        self.settings = {"metrics.listener": "127.0.0.1:0", **(settings or {})}
        self.arguments = list(arguments)
        self.program = ["-m", "quipu"]  # what Python is told to run
        self.prefix: list[str] = []  # what Python is run by: on another host, with other limits
        self.environment: dict[str, str] = {}  # besides that of this process
        self.host = "127.0.0.1"
        self.port = 0  # 0 until the first start; restarts keep the port
        self._held_port = hold_port(self)
        self.start_seconds = 0.0  # from exec to the ready line, of the last start
        self._log_start = 0  # where the log of the last start begins in `log_path`
        self._started = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """The address for a client's `bootstrap.servers`."""
        return f"{self.host}:{self.port}"

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process of the last start."""
        assert self._process is not None, "the node was never started"
        return self._process

    @property
    def pid(self) -> int:
        """The process id of the last start."""
        return self.process.pid

    @property
    def http(self) -> str:
        """The base URL of metrics and health; the node logs the address it took."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            if found := _HTTP.search(self.log_text()[self._log_start :]):
                return f"http://{found['address']}"
            time.sleep(0.02)
        raise NodeFailed(f"the node logged no HTTP address{self._log_tail()}")

    def command(self) -> list[str]:
        """What `start` runs."""
        words = [*self.prefix, sys.executable, *self.program, "start", "--dir", str(self.directory)]
        words += ["--listen", f"{self.host}:{self._held_port}"]
        for key, value in self.settings.items():
            words += ["--set", f"{key}={value}"]
        return words + self.arguments

    def start(self, *, timeout: float = START_SECONDS_MAX) -> Self:
        """Start the process and wait until it serves."""
        return self.launch().await_ready(timeout=timeout)

    def launch(self) -> Self:
        """Start the process; see `await_ready`."""
        assert self._process is None or self._process.poll() is not None, "it already runs"
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        self._log_start = len(self.log_text())
        self._started = time.monotonic()
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), stdout=subprocess.PIPE, stderr=log,
                env={**environment(), **self.environment}
            )
        return self

    def await_ready(self, *, timeout: float = START_SECONDS_MAX) -> Self:
        """Wait until the process that was launched serves."""
        try:
            line = self._first_line(deadline=self._started + timeout)
        except NodeFailed:
            self.kill()
            raise
        self.start_seconds = time.monotonic() - self._started
        found = _READY.fullmatch(line)
        if found is None:
            self.kill()
            raise NodeFailed(f"not a ready line: {line!r}{self._log_tail()}")
        self.host, self.port = found["host"], int(found["port"])
        return self

    def stop(self, *, timeout: float = STOP_SECONDS_MAX) -> int:
        """Ask the node to stop (SIGTERM); return its exit code, which is 0 for a clean stop."""
        process = self.process
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise NodeFailed(f"no stop within {timeout} s{self._log_tail()}") from None
        self._close()
        return code

    def kill(self) -> None:
        """End the process at once (SIGKILL); nothing that it holds in memory is saved."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._close()

    @property
    def runs(self) -> bool:
        """Is there a process, paused or not?"""
        return self._process is not None and self._process.poll() is None

    def pause(self) -> None:
        """Stop the process in its tracks (SIGSTOP); its connections stay open and silent."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on (SIGCONT)."""
        self.process.send_signal(signal.SIGCONT)

    def restart(self) -> Self:
        """Stop cleanly and start on the same directory and port."""
        code = self.stop()
        if code != 0:
            raise NodeFailed(f"stopped with exit code {code}{self._log_tail()}")
        return self.start()

    def log_text(self) -> str:
        """Everything logged so far, over all starts."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def _first_line(self, *, deadline: float) -> str:
        """The first line on standard output; a process that ends before it is a failure."""
        stdout = self.process.stdout
        assert stdout is not None
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(deadline - time.monotonic(), 0)):
                    raise NodeFailed(f"not ready in time{self._log_tail()}")
                part = os.read(stdout.fileno(), 4096)
                if not part:
                    code = self.process.wait()
                    raise NodeFailed(f"ended with exit code {code}{self._log_tail()}")
                line += part
        return line.decode()

    def _close(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _log_tail(self) -> str:
        return f"; it logged:\n{self.log_text()[-LOG_TAIL_SIZE:]}"

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
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from quipu.launch.process import NodeFailed, NodeProcess, node_environment, start_command
from quipu.launch.progress import ProgressWatch, WaitLimits
from tests.harness.ports import hold_port

REPOSITORY = Path(__file__).resolve().parents[2]
LIMITS = WaitLimits(seconds_max=100.0)  # below the time that a test gets

_HTTP = re.compile(r"http[\"=: ]+(?P<address>[\d.]+:\d+)")


def environment() -> dict[str, str]:
    """This process's variables, with the checkout importable.

    Left out are `QUIPU_` settings, and whatever keeps Python from caching what it compiles: the
    node of a user compiles its modules once, not at every start.
    """
    kept = node_environment()
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    source = str(REPOSITORY / "src")
    path = os.environ.get("PYTHONPATH")
    return {**kept, "PYTHONPATH": f"{source}{os.pathsep}{path}" if path else source}


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
        self._process: NodeProcess | None = None

    @property
    def bootstrap(self) -> str:
        """The address for a client's `bootstrap.servers`."""
        return f"{self.host}:{self.port}"

    @property
    def process(self) -> NodeProcess:
        """The process of the last start."""
        assert self._process is not None, "the node was never started"
        return self._process

    @property
    def pid(self) -> int:
        """The process id of the last start."""
        return self.process.pid

    @property
    def start_seconds(self) -> float:
        """From the start of the process to its ready line, of the last start."""
        return self.process.start_seconds

    @property
    def http(self) -> str:
        """The base URL of metrics and health; the node logs the address it took."""
        watch = ProgressWatch(self.pid, self.log_path, LIMITS)
        while not watch.is_over():
            if found := _HTTP.search(self.process.log_text()):
                return f"http://{found['address']}"
            time.sleep(0.02)
        raise NodeFailed(f"the node logged no HTTP address, but:\n{self.process.log_tail()}")

    def command(self) -> list[str]:
        """What `start` runs."""
        words = ["--dir", str(self.directory), "--listen", f"{self.host}:{self._held_port}"]
        started = start_command(*words, settings=self.settings, python=self.program)
        return [*self.prefix, *started, *self.arguments]

    def start(self, *, timeout: float | None = None) -> Self:
        """Start the process and wait until it serves; see `await_ready`."""
        return self.launch().await_ready(timeout=timeout)

    def launch(self) -> Self:
        """Start the process; see `await_ready`."""
        assert not self.runs, "it already runs"
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        self._process = NodeProcess(
            self.directory.name, self.command(), self.log_path,
            environment={**environment(), **self.environment})
        return self

    def await_ready(self, *, timeout: float | None = None) -> Self:
        """Wait until the process that was launched serves: while it makes progress, or for
        `timeout` seconds if these are given.
        """
        try:
            address = self.process.await_ready(_limits(timeout))
        except NodeFailed:
            self.kill()
            raise
        self.host, self.port = address
        return self

    def stop(self, *, timeout: float | None = None) -> int:
        """Ask the node to stop (SIGTERM); return its exit code, which is 0 for a clean stop."""
        return self.process.stop(_limits(timeout))

    def kill(self) -> None:
        """End the process at once (SIGKILL); nothing that it holds in memory is saved."""
        if self._process is not None:
            self._process.kill()

    @property
    def runs(self) -> bool:
        """Is there a process, paused or not?"""
        return self._process is not None and self._process.code is None

    def pause(self) -> None:
        """Stop the process in its tracks (SIGSTOP); its connections stay open and silent."""
        self.process.send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on (SIGCONT)."""
        self.process.send(signal.SIGCONT)

    def restart(self) -> Self:
        """Stop cleanly and start on the same directory and port."""
        code = self.stop()
        if code != 0:
            raise NodeFailed(f"{self.process.end_text()}; it logged:\n{self.process.log_tail()}")
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


def _limits(timeout: float | None) -> WaitLimits:
    return LIMITS if timeout is None else WaitLimits(timeout, timeout)

"""One node as a process of its own, as a user starts it.

    node = NodeProcess("a-0", start_command("--dir", "data"), Path("a-0.log"))
    address = node.await_ready()
    node.send(signal.SIGSTOP)
    code = node.stop()

The caller that starts a process must stop it: with `stop`, `kill`, or a `NodeGroup`.  The node's
log is appended to a file, and its last part is in the message of every failure.
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
from typing import Final

from quipu.launch.progress import ProgressWatch, WaitLimits
from quipu.model.errors import QuipuError
from quipu.model.settings_types import Address

READY_LIMITS: Final = WaitLimits(seconds_max=300.0)
STOP_LIMITS: Final = WaitLimits(seconds_max=120.0)
POLL_SECONDS: Final = 0.05
LOG_TAIL_SIZE: Final = 8_000  # bytes of log shown with a failure
LINE_SIZE_MAX: Final = 4_096

_READY: Final = re.compile(rb"quipu ready (?P<host>\S+):(?P<port>\d+)\n")


class NodeFailed(QuipuError):
    """A node did not start or stop as it should; the message ends with the node's log."""


def start_command(
    *words: str, settings: Mapping[str, str] | None = None, python: Sequence[str] = ("-m", "quipu"),
) -> list[str]:
    """The command `quipu start` with these arguments and settings, run by this Python."""
    command = [sys.executable, *python, "start", *words]
    for name, value in (settings or {}).items():
        command += ["--set", f"{name}={value}"]
    return command


def node_environment() -> dict[str, str]:
    """The environment of this process, without `QUIPU_` settings that are meant for other nodes."""
    return {name: value for name, value in os.environ.items() if not name.startswith("QUIPU_")}


class NodeProcess:
    """A process that runs `quipu start`; constructing this starts it."""

    def __init__(
        self, name: str, command: Sequence[str], log_path: Path, *,
        environment: Mapping[str, str] | None = None, own_group: bool = False,
    ) -> None:
        """`own_group`: Ctrl-C at the terminal does not reach it."""
        self.name = name
        self.log_path = log_path
        self.start_seconds = 0.0  # from the start of the process until the node was ready
        self._output = b""
        self._started = time.monotonic()
        with log_path.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(  # noqa: S603 this program itself
                list(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                process_group=0 if own_group else None,
                env=node_environment() if environment is None else dict(environment))

    @property
    def pid(self) -> int:
        """The process's id, also after its end."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    def await_ready(self, limits: WaitLimits = READY_LIMITS) -> Address:
        """Wait until the node prints its address; raises `NodeFailed` if it ends or hangs."""
        watch = ProgressWatch(self.pid, self.log_path, limits)
        while not self._output.endswith(b"\n"):
            if not self._read_output():
                self._process.wait()
                raise NodeFailed(f"{self.end_text()}; it logged:\n{self.log_tail()}")
            if watch.is_over():
                raise NodeFailed(
                    f"{self.name} is not ready after {watch.seconds:.0f} s; it logged:\n"
                    f"{self.log_tail()}")
        self.start_seconds = time.monotonic() - self._started
        found = _READY.fullmatch(self._output)
        if found is None:
            raise NodeFailed(f"{self.name} printed {self._output!r} instead of its address")
        return Address(found["host"].decode().strip("[]"), int(found["port"]))

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if the process still runs."""
        if self.code is None:
            self._process.send_signal(number)

    def stop(self, limits: WaitLimits = STOP_LIMITS) -> int:
        """Stop the node (SIGTERM) and wait; returns its exit code, 0 for a clean stop.

        A node that hangs is killed, and `NodeFailed` is raised.
        """
        self.send(signal.SIGTERM)
        if not self.await_end(limits):
            self.kill()
            raise NodeFailed(f"{self.name} does not stop; it logged:\n{self.log_tail()}")
        return self.close()

    def await_end(self, limits: WaitLimits = STOP_LIMITS) -> bool:
        """Wait until the process has ended; False if it hangs."""
        watch = ProgressWatch(self.pid, self.log_path, limits)
        while not watch.is_over():
            try:
                self._process.wait(POLL_SECONDS)
            except subprocess.TimeoutExpired:
                continue
            return True
        return self.code is not None

    def kill(self) -> None:
        """End the process at once (SIGKILL); nothing that it holds in memory is saved."""
        self._process.kill()
        self.close()

    def close(self) -> int:
        """Wait for the end of a process that has been signalled; returns its exit code."""
        code = self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code

    def end_text(self) -> str:
        """How it ended: `a-0 (process 417) ended with SIGKILL`."""
        code = self.code
        assert code is not None, "it runs"
        how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
        return f"{self.name} (process {self.pid}) ended with {how}"

    def log_text(self) -> str:
        """What it has logged since this start."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def log_tail(self) -> str:
        """The last part of what it has logged."""
        return self.log_text()[-LOG_TAIL_SIZE:]

    def _read_output(self) -> bool:
        """Read the process's output, or wait a moment for some; False at the end of output."""
        stdout = self._process.stdout
        assert stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            if not selector.select(POLL_SECONDS):
                return True
        part = os.read(stdout.fileno(), LINE_SIZE_MAX)
        self._output = (self._output + part)[:LINE_SIZE_MAX]
        return bool(part)

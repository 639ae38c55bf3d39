"""The processes of `quipu dev`: started, waited for, watched, and ended by their ids.

Each is in a session of its own, so that Ctrl-C at the terminal reaches only `quipu dev`, which
passes it on once: a node that is told twice stops without taking its leave.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from quipu.cli.dev_layout import Layout, NodePlan
from quipu.cli.errors import CommandFailed
from quipu.cli.output import printable, tell

READY_SECONDS_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 30.0
POLL_SECONDS: Final = 0.05
LOG_TAIL_LINES: Final = 10
_READY: Final = b"quipu ready "


class Child:
    """One node's process."""

    def __init__(self, plan: NodePlan, directory: Path) -> None:
        self.plan = plan
        self.config_path = directory / f"{plan.name}.properties"
        self.log_path = directory / f"{plan.name}.log"
        self._said = b""
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 this program itself
                [sys.executable, "-m", "quipu", "start", "--config", str(self.config_path)],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                start_new_session=True, env=_environment())
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)

    @property
    def pid(self) -> int:
        """The process's id, also after its end."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """How it ended; None while it runs."""
        return self._process.poll()

    @property
    def is_ready(self) -> bool:
        """Has it said that it serves?"""
        stdout = self._process.stdout
        assert stdout is not None
        with suppress(BlockingIOError):
            self._said += os.read(stdout.fileno(), 4096)
        return self._said.startswith(_READY) and b"\n" in self._said

    def end_text(self) -> str:
        """`ended with SIGKILL`, and how to start it again."""
        code = self.code
        assert code is not None
        how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
        return f"{self.plan.name} (process {self.pid}) ended with {how}"

    def tell_log(self) -> None:
        """Show the last lines that it logged."""
        for line in self.log_path.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]:
            tell(f"{self.plan.name}: {printable(line)}")

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it runs."""
        if self.code is None:
            self._process.send_signal(number)

    def close(self) -> None:
        """Take notice of its end."""
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


class Children:
    """The processes of all nodes."""

    def __init__(self) -> None:
        self._children: list[Child] = []

    def __iter__(self) -> Iterator[Child]:
        return iter(self._children)

    def start(self, layout: Layout, directory: Path) -> None:
        """Start every node, then wait until each one serves."""
        for node in layout.nodes:
            self._children.append(Child(node, directory))
        deadline = time.monotonic() + READY_SECONDS_MAX
        for child in self._children:
            while not child.is_ready:
                if child.code is not None:
                    child.tell_log()
                    raise CommandFailed(f"{child.end_text()}; all of its log: {child.log_path}")
                if time.monotonic() > deadline:
                    child.tell_log()
                    raise CommandFailed(f"{child.plan.name} does not serve after "
                                        f"{READY_SECONDS_MAX:.0f} s; its log: {child.log_path}")
                time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """SIGTERM for all, SIGKILL for those that do not end; an interrupt hastens it."""
        with suppress(KeyboardInterrupt):
            for child in self._children:
                child.send(signal.SIGTERM)
            deadline = time.monotonic() + STOP_SECONDS_MAX
            while time.monotonic() < deadline and any(
                    child.code is None for child in self._children):
                time.sleep(POLL_SECONDS)
        for child in self._children:
            child.send(signal.SIGKILL)
            child.close()


def _environment() -> dict[str, str]:
    """This process's variables; its settings are in files, and those of others do not count."""
    return {name: value for name, value in os.environ.items() if not name.startswith("QUIPU_")}

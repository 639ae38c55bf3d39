r"""A program on a terminal of its own, typed into and read from as a person does.

    with Terminal([sys.executable, "-m", "quipu", "sql"]) as terminal:
        terminal.wait_for("sql>")
        terminal.type("SELECT 1;\r")
        terminal.type(CTRL_C)              # SIGINT, for all that runs in the foreground

Whatever was seen is part of the message of a failure.  Leaving the `with` block ends the program.
"""

import os
import pty
import select
import signal
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

CTRL_C, CTRL_D = "\x03", "\x04"
SECONDS_MAX = 600.0  # machines that run tests are busy


class Terminal:
    """A program on a terminal of its own; used in a `with` statement."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str]) -> None:
        self._command = list(command)
        self._variables = {**variables, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}
        self._seen = ""
        self._taken = 0  # up to where `wait_for` has looked
        self._pid = 0
        self._file = -1

    def __enter__(self) -> Self:
        self._pid, self._file = pty.fork()
        if self._pid == 0:
            try:
                os.execve(self._command[0], self._command, self._variables)
            finally:
                os._exit(127)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._file)

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._file, text.encode())

    def wait_for(self, text: str, seconds: float = SECONDS_MAX) -> float:
        """Wait until a text is shown that was not waited for before; how long that took."""
        begun = time.monotonic()
        while (found := self._seen.find(text, self._taken)) < 0:
            left = begun + seconds - time.monotonic()
            assert left > 0, f"no {text!r} after {seconds} s: {self._seen[-4000:]}"
            assert self._read(left), f"the program ended without {text!r}: {self._seen[-4000:]}"
        self._taken = found + len(text)
        return time.monotonic() - begun

    def code(self) -> int:
        """Wait for the end of the program: its exit code."""
        while self._read(SECONDS_MAX):
            pass
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        return os.waitstatus_to_exitcode(status)

    def _read(self, seconds: float) -> bool:
        """Take what is shown within a time; False at the end of the program."""
        ready, _, _ = select.select([self._file], [], [], seconds)
        if not ready:
            return True
        try:
            data = os.read(self._file, 65_536)
        except OSError:  # how Linux says that nobody has the terminal any more
            return False
        self._seen += data.decode(errors="replace")
        return bool(data)

"""A process that reports by lines: read without blocking, ended with certainty."""

import contextlib
import ctypes
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence

TAIL_LINES = 40  # shown with a failure
PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """The process ends with the thread that started it, also if that is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class LineProcess:
    """A program whose standard output and error are one stream of lines; with
    `ends_with_parent` it does not outlive the thread that started it.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], *,
        ends_with_parent: bool = False,
    ) -> None:
        self._lines: list[str] = []
        self._taken = 0
        self._process = subprocess.Popen(
            list(command), env=dict(environment), text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            preexec_fn=end_with_parent if ends_with_parent else None,  # noqa: PLW1509 only this
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def take_lines(self) -> list[str]:
        """The lines that came since the last call."""
        end = len(self._lines)
        taken, self._taken = self._lines[self._taken : end], end
        return taken

    def terminate(self, seconds_max: float) -> None:
        """SIGTERM, and wait; a process that does not end is killed, and is a failure."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"no end within {seconds_max} s\n{self.tail()}") from None
        self._close()

    def kill(self) -> None:
        """SIGKILL, and wait."""
        self._process.kill()
        self._process.wait()
        self._close()

    def tail(self) -> str:
        """The last lines."""
        code = self._process.poll()
        state = "runs" if code is None else f"ended with {code}"
        return "\n".join([f"[{state}]", *self._lines[-TAIL_LINES:]])

    def _read(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError):  # closed while reading
            for line in self._process.stdout:
                self._lines.append(line.rstrip("\n"))

    def _close(self) -> None:
        self._reader.join(5)
        assert self._process.stdout is not None
        self._process.stdout.close()

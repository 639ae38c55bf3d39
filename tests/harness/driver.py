"""A Spark driver in a process of its own, so that it can be killed: `quipu.pipeline` by remote.

    with RunningDriver(tmp_path / "driver.log") as driver:
        driver.connect(state=tmp_path / "state", master="local[2]")
        driver.execute("SELECT * FROM v")          # a list of tuples
        driver.follow("v", tmp_path / "v.jsonl")   # SUBSCRIBE, into a file
        driver.kill()                              # SIGKILL, its JVM and its workers with it
        driver.start()

The process reads one call per line from its standard input and replies with one line of JSON each.
Values that JSON does not have are sent as text (`plain`). Everything that the process, its JVM and
its workers print is in the log.
"""

import contextlib
import datetime as dt
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from tests.harness.node import REPOSITORY, environment
from tests.harness.progress import Patience

END_SECONDS_MAX = 120.0  # of processes that were killed
LOOK_SECONDS = 1.0
LOG_TAIL_SIZE = 6_000
SETTINGS = {  # a small Spark that starts fast
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -Xshare:auto",
    "spark.driver.memory": "1g",
}

Row = tuple[Any, ...]


class DriverFailed(AssertionError):
    """The driver raised an error, or did not reply; the message ends with its log."""


def plain(value: object) -> object:
    """A value as JSON has it: bytes as hexadecimal digits, times in UTC as ISO 8601 has them."""
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat() if value.tzinfo else value.isoformat()
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    return value if isinstance(value, int | float | str | None) else str(value)


class RunningDriver:
    """The test's side of a Spark driver that runs in another process."""

    def __init__(self, log_path: Path) -> None:
        self.log_path = log_path
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start the process; it connects on `connect`."""
        assert self._process is None, "it already runs"
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        variables = {**environment(), "SPARK_LOCAL_IP": "127.0.0.1"}
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.harness.driver"], cwd=REPOSITORY, env=variables,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True,
            )
        return self

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "it does not run"
        return self._process

    def kill(self) -> None:
        """End it at once, with everything that it has started."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        process.wait()
        for straggler in session_of(process.pid):  # workers have a group of their own
            with contextlib.suppress(psutil.NoSuchProcess):
                straggler.kill()
        deadline = time.monotonic() + END_SECONDS_MAX
        while session_of(process.pid):
            assert time.monotonic() < deadline, session_of(process.pid)
            time.sleep(0.02)

    def connect(
        self, state: Path, *, master: str = "local[2]", settings: dict[str, str] | None = None,
    ) -> None:
        """`quipu.pipeline.connect`."""
        chosen = {**SETTINGS, **(settings or {})}
        self.call("connect", state=str(state), master=master, settings=chosen)

    def execute(self, statement: str) -> list[Row]:
        """The rows that a statement gives, sorted if it is a query."""
        return [tuple(row) for row in self.call("execute", statement=statement)]

    def follow(self, view: str, path: Path) -> None:
        """Write a view's changes to a file, a line each, until the end; see `changes`."""
        self.call("follow", view=view, path=str(path))

    def close(self) -> None:
        """End the pipeline, but not the process: it can connect again."""
        self.call("close")

    def call(self, name: str, **given: Any) -> Any:
        """Run a call in the process, and wait for its result."""
        self.send(name, **given)
        return self.answer()

    def send(self, name: str, **given: Any) -> None:
        """Send a call to the process; `answer` waits for its result."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"call": name, "given": given}).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        """The result of the call that was sent."""
        found = json.loads(self._line())
        if "error" in found:
            raise DriverFailed(f"{found['error']}{self._log_tail()}")
        return found["value"]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def _line(self) -> bytes:
        stdout = self.process.stdout
        assert stdout is not None
        pid = self.process.pid
        patience = Patience(self._log_tail, processes=lambda: session_of(pid))
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(LOOK_SECONDS):
                    patience.check(line)
                    continue
                part = os.read(stdout.fileno(), 65_536)
                if not part:
                    raise DriverFailed(f"it ended{self._log_tail()}")
                line += part
        return line

    def _log_tail(self) -> str:
        return f"; it logged:\n{self.log_path.read_text(errors='replace')[-LOG_TAIL_SIZE:]}"


def session_of(pid: int) -> list[psutil.Process]:
    """The processes of the session that a process leads, or has led."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getsid(process.pid) == pid and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def changes(path: Path) -> Iterator[dict[str, Any]]:
    """What `follow` wrote, as far as lines are whole.

    {"version": 3, "diff": 1, "row": [...], "places": [{"topic": {"0": 17}}, ...]}

    `places` is with the first change of a version: up to where it has read each of its sources.
    """
    lines = path.read_bytes().split(b"\n") if path.exists() else [b""]
    return (json.loads(line) for line in lines[:-1])


class _Driver:
    """This is the side of the process."""

    def __init__(self) -> None:
        self._pipeline: Any = None

    def connect(self, state: str, master: str, settings: dict[str, str]) -> None:
        import quipu.pipeline

        self._pipeline = quipu.pipeline.connect(state=state, master=master, settings=settings)

    def execute(self, statement: str) -> list[object]:
        found = self._pipeline.execute(statement)
        if hasattr(found, "collect"):
            return sorted((plain(tuple(row)) for row in found.collect()), key=repr)
        return [plain(row) for row in found.rows]

    def follow(self, view: str, path: str) -> None:
        threading.Thread(target=self._follow, args=(view, Path(path)), daemon=True).start()

    def _follow(self, view: str, path: Path) -> None:
        from quipu.pipeline.views import versions
        from quipu.pipeline.views.inputs import positions_to_json

        folder = self._pipeline._live.maintained[view].view.files.versions
        last = None
        with path.open("a", buffering=1) as file:
            for change in self._pipeline.subscribe(view):
                line = {"version": change.version, "diff": change.diff,
                        "row": plain(list(change.row.values()))}
                if change.version != last:
                    last = change.version
                    line["places"] = positions_to_json(versions.read(folder, last).positions)
                file.write(json.dumps(line) + "\n")

    def wait(self, view: str) -> int:
        return int(self._pipeline.wait(view))

    def close(self) -> None:
        self._pipeline.close()


def main() -> None:
    """Do what is asked, one thing after the other, until nobody asks any more."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever is printed goes to the log
    driver = _Driver()
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            said = {"value": getattr(driver, asked["call"])(**asked["given"])}
        except Exception as error:  # noqa: BLE001 the test decides
            said = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main()

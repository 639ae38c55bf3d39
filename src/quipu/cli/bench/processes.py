"""Processes of a run: helpers that share nothing with us, and what a process has cost so far.

A load generator or a bare server runs in a process of its own, started afresh, so that no
measurement pays for another one's garbage, threads or lock.
"""

import contextlib
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NamedTuple

from quipu.cli.bench.control import BenchError

CHILD_SECONDS_MAX: Final = 900.0
END_SECONDS_MAX: Final = 10.0

_spawn = multiprocessing.get_context("spawn")


def in_child(function: Callable[..., Any], *args: Any) -> Any:  # noqa: ANN401 whatever it returns
    """Call `function` in a new process; give what it returns, or raise what it raised."""
    with started(_call, function, args) as (pipe, _):
        return _received(pipe, CHILD_SECONDS_MAX)


@contextlib.contextmanager
def serving(function: Callable[..., None], *args: Any) -> Iterator[tuple[Any, int]]:  # noqa: ANN401
    """A process that runs `function(ready, *args)`; gives what it told `ready`, and its pid."""
    with started(_serve, function, args) as (pipe, pid):
        yield _received(pipe, END_SECONDS_MAX), pid


@contextlib.contextmanager
def started(
    function: Callable[..., None],
    *args: Any,  # noqa: ANN401 handed on
) -> Iterator[tuple["Connection[Any, Any]", int]]:
    """A process that runs `function(pipe, *args)`, and is ended on leaving."""
    ours, theirs = _spawn.Pipe()
    process = _spawn.Process(target=function, args=(theirs, *args), daemon=True)
    process.start()
    theirs.close()
    assert process.pid is not None
    try:
        yield ours, process.pid
    finally:
        process.join(0.1 if process.is_alive() else None)
        if process.is_alive():
            process.terminate()
            process.join(END_SECONDS_MAX)
        if process.is_alive():
            process.kill()
            process.join()
        ours.close()
        process.close()


def _received(pipe: "Connection[Any, Any]", seconds_max: float) -> Any:  # noqa: ANN401
    try:
        if not pipe.poll(seconds_max):
            raise BenchError(f"a process of the bench said nothing for {seconds_max:.0f} s")
        kind, value = pipe.recv()
    except EOFError:
        raise BenchError("a process of the bench ended without an answer") from None
    if kind == "failed":
        raise BenchError(value)
    return value


def _call(
    pipe: "Connection[Any, Any]", function: Callable[..., Any], args: tuple[object, ...]
) -> None:
    try:
        pipe.send(("done", function(*args)))
    except Exception as error:  # noqa: BLE001 told to the parent, which raises it
        pipe.send(("failed", f"{type(error).__name__}: {error}"))


def _serve(
    pipe: "Connection[Any, Any]", function: Callable[..., None], args: tuple[object, ...]
) -> None:
    def ready(value: Any) -> None:  # noqa: ANN401 handed on
        pipe.send(("done", value))

    try:
        function(ready, *args)
    except Exception as error:  # noqa: BLE001 told to the parent, which raises it
        pipe.send(("failed", f"{type(error).__name__}: {error}"))


# --- what a process costs ---------------------------------------------------------------------


class Cost(NamedTuple):
    """What a process has used since it started."""

    cpu_seconds: float
    resident_bytes: int


def cost_of(pid: int) -> Cost:
    """CPU of all threads in nanosecond steps, and resident memory; raises for no such process."""
    try:
        nanoseconds = sum(
            int((task / "schedstat").read_text().split()[0])
            for task in Path(f"/proc/{pid}/task").iterdir()
        )
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError) as error:
        raise BenchError(f"cannot read what process {pid} uses: {error}") from error
    return Cost(nanoseconds / 1e9, pages * os.sysconf("SC_PAGE_SIZE"))


def listening_pid(port: int) -> int | None:
    """The process that listens on a TCP port of this machine, if it is there and ours to see."""
    inodes = set(_listening_inodes(port))
    for process in Path("/proc").iterdir() if inodes else ():
        if not process.name.isdigit():
            continue
        with contextlib.suppress(OSError):  # ended, or another user's
            for descriptor in (process / "fd").iterdir():
                if descriptor.readlink().name in inodes:
                    return int(process.name)
    return None


def _listening_inodes(port: int) -> Iterator[str]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                    yield f"socket:[{fields[9]}]"


def settle(seconds: float = 0.05) -> None:
    """Let the machine finish what the last measurement left behind."""
    time.sleep(seconds)

"""Runs functions in processes of their own, and reads the CPU that a process has used.

Each load generator and each bare server runs in a new process, so that no measurement is affected
by the garbage, threads or interpreter lock of another one.
"""

import contextlib
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any, Final

from quipu.bench.errors import BenchError
from quipu.launch.usage import ProcessUsage, usage_of

CHILD_SECONDS_MAX: Final = 900.0
START_SECONDS_MAX: Final = 60.0  # of a server, on a busy machine
END_SECONDS_MAX: Final = 10.0

_spawn = multiprocessing.get_context("spawn")


def in_child(function: Callable[..., Any], *args: Any) -> Any:  # noqa: ANN401 whatever it returns
    """Call `function` in a new process; returns its result, or raises its error as `BenchError`."""
    with started(_call, function, args) as (pipe, _):
        return _received(pipe, CHILD_SECONDS_MAX)


def in_children(calls: Sequence[tuple[Callable[..., Any], tuple[Any, ...]]]) -> list[Any]:
    """Call functions, each in a new process, at the same time; as `in_child`."""
    with contextlib.ExitStack() as stack:
        pipes = [stack.enter_context(started(_call, *each))[0] for each in calls]
        return [_received(pipe, CHILD_SECONDS_MAX) for pipe in pipes]


@contextlib.contextmanager
def serving(function: Callable[..., None], *args: Any) -> Iterator[tuple[Any, int]]:  # noqa: ANN401
    """A process that runs `function(ready, *args)`; yields the argument of `ready`, and the pid."""
    with started(_serve, function, args) as (pipe, pid):
        yield _received(pipe, START_SECONDS_MAX), pid


@contextlib.contextmanager
def started(
    function: Callable[..., None],
    *args: Any,  # noqa: ANN401 handed on
) -> Iterator[tuple["Connection[Any, Any]", int]]:
    """A process that runs `function(pipe, *args)`, and is ended with the `with` block."""
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
            raise BenchError(f"a process of the bench sent nothing for {seconds_max:.0f} s")
        kind, value = pipe.recv()
    except EOFError:
        raise BenchError("a process of the bench ended without a result") from None
    if kind == "failed":
        raise BenchError(value)
    return value


def _call(
    pipe: "Connection[Any, Any]", function: Callable[..., Any], args: tuple[object, ...]
) -> None:
    try:
        pipe.send(("done", function(*args)))
    except Exception as error:  # noqa: BLE001 sent to the parent, which raises it
        pipe.send(("failed", f"{type(error).__name__}: {error}"))


def _serve(
    pipe: "Connection[Any, Any]", function: Callable[..., None], args: tuple[object, ...]
) -> None:
    def ready(value: Any) -> None:  # noqa: ANN401 handed on
        pipe.send(("done", value))

    try:
        function(ready, *args)
    except Exception as error:  # noqa: BLE001 sent to the parent, which raises it
        pipe.send(("failed", f"{type(error).__name__}: {error}"))


# --- usage of a process -----------------------------------------------------------------------


def cost_of(pid: int) -> ProcessUsage:
    """The CPU and memory that a process has used; raises `BenchError` if there is none."""
    try:
        return usage_of(pid)
    except OSError as error:
        raise BenchError(f"cannot read the usage of process {pid}: {error}") from error


def settle(seconds: float = 0.05) -> None:
    """Wait a moment, so that work left by the last measurement can finish."""
    time.sleep(seconds)

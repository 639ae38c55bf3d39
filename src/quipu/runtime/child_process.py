"""Work in a process of its own, for what would take the interpreter's lock from the event loop.

    run_child      runs a module of this program, gives it a request, and hands on its lines
    read_request   in the child: what it is to do
    write_line     in the child: one line of its result
    ChildPace       in the child: limits its rate, and ends it when its parent has ended

The request is one line on the child's standard input, which stays open for as long as the parent
wants the work to go on; the result is lines on its standard output.

Invariants
    runtime.CP1  a child ends when its parent does, however that ends: its input is closed then,
                 and it looks at every pause
    runtime.CP2  a child yields to everything else that the machine has to do: it has the lowest
                 priority
"""

import asyncio
import os
import select
import sys
import time
from collections.abc import Callable
from typing import Final

from quipu.model.errors import QuipuError
from quipu.runtime.spawn import spawn

LINE_SIZE_MAX: Final = 16 << 20
ERRORS_SIZE_MAX: Final = 4096  # of what the child wrote to standard error, in the message
NICENESS: Final = 19
_STDIN: Final = 0
_STDOUT: Final = 1


class ChildFailed(QuipuError):
    """A child process ended with an error; the message has what it wrote last."""


# --- in the parent ------------------------------------------------------------------------------


async def run_child(module: str, request: bytes, on_line: Callable[[bytes], None]) -> None:
    """Run `python -m module` with `request`, which is one line; returns when it has ended.

    `on_line` gets each line of its result; if it raises, or the caller is cancelled, the child is
    killed.  Raises `ChildFailed`.
    """
    assert b"\n" not in request, module
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, limit=LINE_SIZE_MAX)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    errors = spawn(_last_bytes(process.stderr), f"errors of {module}")
    try:
        process.stdin.write(request + b"\n")
        while line := await process.stdout.readline():
            on_line(line.rstrip(b"\n"))
        status = await process.wait()
    except (ValueError, OSError) as error:
        raise ChildFailed(f"{module}: {error}") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        process.stdin.close()
        said = (await errors).decode(errors="replace").strip()
    if status != 0:
        raise ChildFailed(f"{module} ended with status {status}: {said}")


async def _last_bytes(stream: asyncio.StreamReader) -> bytes:
    """The end of what a child wrote; all of it is read, so that the child never waits."""
    kept = b""
    while part := await stream.read(ERRORS_SIZE_MAX):
        kept = (kept + part)[-ERRORS_SIZE_MAX:]
    return kept


# --- in the child -------------------------------------------------------------------------------


def read_request() -> bytes:
    """The request, without its line end; gives way to other processes first (runtime.CP2)."""
    os.nice(NICENESS)
    data = bytearray()
    while not data.endswith(b"\n"):
        part = os.read(_STDIN, 1 << 16)
        if not part:
            raise ChildFailed("the parent ended before its request was complete")
        data += part
    return bytes(data[:-1])


def write_line(line: bytes) -> None:
    """Send one line of the result."""
    assert b"\n" not in line, line
    rest = memoryview(line + b"\n")
    while rest:
        rest = rest[os.write(_STDOUT, rest):]


class ChildPace:
    """Limits work to so many bytes per second, on average since it began."""

    def __init__(self, bytes_per_second: int) -> None:
        assert bytes_per_second > 0, bytes_per_second
        self._rate = bytes_per_second
        self._began = time.monotonic()
        self._size = 0

    def __call__(self, size: int) -> None:
        """Wait until `size` more bytes are within the rate; ends the process if the parent has.

        Keeps runtime.CP1.
        """
        self._size += size
        while True:
            ahead = self._began + self._size / self._rate - time.monotonic()
            readable, _, _ = select.select([_STDIN], [], [], min(max(ahead, 0.0), 1.0))
            if readable and not os.read(_STDIN, 1 << 16):
                raise SystemExit(1)
            if ahead <= 0:
                return

"""Work in a process of its own: its lines, its failures, its end."""

import asyncio
import os
import sys
import time
from pathlib import Path

import psutil
import pytest

from quipu.runtime import child_process
from quipu.runtime.child_process import ChildFailed, run_child
from tests.looped import looped

ECHO = """
from quipu.runtime.child_process import ChildPace, read_request, write_line
import os
request = read_request()
if request == b"fail":
    raise SystemExit("as asked")
write_line(b"%d %d" % (os.getpid(), os.nice(0)))
pause = ChildPace(1 << 20)
while request == b"work":
    pause(1 << 18)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "echo_child.py").write_text(ECHO)
    paths = [str(tmp_path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    return "echo_child"


@looped
async def test_a_child_answers_in_lines_and_gives_way(module: str) -> None:
    """K5: runtime.CP2: it has the lowest priority; its lines arrive as they are written."""
    lines: list[bytes] = []
    await run_child(module, b"once", lines.append)
    assert len(lines) == 1
    assert int(lines[0].split()[1]) == child_process.NICENESS


@looped
async def test_the_message_of_a_child_that_fails_is_told(module: str) -> None:
    """K5: with what it said last."""
    with pytest.raises(ChildFailed, match="as asked"):
        await run_child(module, b"fail", lambda _: None)


@looped
async def test_a_child_ends_with_the_work_that_asked_for_it(module: str) -> None:
    """K5: runtime.CP1: it is killed if the caller is cancelled."""
    pids: list[int] = []
    task = asyncio.ensure_future(run_child(
        module, b"work", lambda line: pids.append(int(line.split()[0]))))
    while not pids:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not psutil.pid_exists(pids[0])


def test_a_child_ends_when_its_parent_is_killed(module: str, tmp_path: Path) -> None:
    """K5: runtime.CP1: its input is closed then, and it looks at every pause."""
    script = ("import asyncio, sys\nfrom quipu.runtime.child_process import run_child\n"
              "asyncio.run(run_child(sys.argv[1], b'work', lambda line: print(line.decode(), "
              "flush=True)))\n")
    import subprocess
    parent = subprocess.Popen([sys.executable, "-c", script, module], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline().split()[0])
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 20
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    parent.stdout.close()

"""A node as a process: started, waited for, signalled, ended, and its failures told."""

import signal
import sys
from pathlib import Path

import pytest

from quipu.launch.group import NodeGroup
from quipu.launch.process import NodeFailed, NodeProcess, start_command
from quipu.launch.progress import WaitLimits
from tests.harness.node import environment

SHORT = WaitLimits(seconds_max=60.0, quiet_seconds_max=1.0)


def program(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def started(path: Path, code: str) -> NodeProcess:
    return NodeProcess("a-0", program(code), path / "log", environment=environment())


def test_a_node_serves_and_stops(tmp_path: Path) -> None:
    """K10: ready with its address; SIGTERM ends it with 0."""
    words = ("--dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    command = start_command(*words, settings={"metrics.listener": "127.0.0.1:0"})
    node = NodeProcess("a-0", command, tmp_path / "log", environment=environment())
    try:
        host, port = node.await_ready()
        assert (host, port > 0, node.code) == ("127.0.0.1", True, None)
        assert node.start_seconds > 0
        assert node.stop() == 0
    finally:
        node.kill()
    assert node.log_text() != ""


def test_a_node_that_ends_is_told_with_its_log(tmp_path: Path) -> None:
    node = started(tmp_path, "import sys; sys.exit('no such disk')")
    with pytest.raises(NodeFailed, match=r"a-0 \(process \d+\) ended with exit code 1; it logged:"
                                         r"\nno such disk"):
        node.await_ready()
    assert node.close() == 1


def test_only_the_log_of_this_start_is_told(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("of yesterday\n")
    node = started(tmp_path, "import sys; sys.exit('of today')")
    with pytest.raises(NodeFailed) as raised:
        node.await_ready()
    assert "yesterday" not in str(raised.value)
    node.close()


@pytest.mark.parametrize(("code", "words"), [
    ("import time; time.sleep(60)", "a-0 is not ready after"),
    ("print('hello', flush=True); import time; time.sleep(60)", "printed b'hello"),
])
def test_a_node_that_hangs_or_talks_nonsense(tmp_path: Path, code: str, words: str) -> None:
    node = started(tmp_path, code)
    try:
        with pytest.raises(NodeFailed, match=words):
            node.await_ready(SHORT)
    finally:
        node.kill()


def test_a_node_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    ready = "print('quipu ready [::1]:9092', flush=True)"
    ignore = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    node = started(tmp_path, f"{ignore}; {ready}; import time; time.sleep(60)")
    assert str(node.await_ready()) == "[::1]:9092"
    with pytest.raises(NodeFailed, match="a-0 does not stop"):
        node.stop(SHORT)
    assert node.end_text().endswith("ended with SIGKILL")


def test_a_group_ends_all_whatever_happens(tmp_path: Path) -> None:
    """Those that are up, those that never were, and those that are paused."""
    serves = "print('quipu ready h:1', flush=True); import time; time.sleep(60)"

    def run() -> None:
        with NodeGroup() as nodes:
            for name, code in [("a-0", serves), ("a-1", "1/0")]:
                kept.append(nodes.start(name, program(code), tmp_path / name,
                                        environment=environment()))
            nodes.await_ready()

    kept: list[NodeProcess] = []
    with pytest.raises(NodeFailed, match="ZeroDivisionError"):
        run()
    assert [node.code for node in kept] == [-signal.SIGTERM, 1]

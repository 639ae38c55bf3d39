"""`quipu start`: ready lines, clean stops, and one clear message for everything that is wrong."""

import itertools
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import NamedTuple

import pytest

from quipu.launch.process import NodeFailed
from quipu.launch.usage import usage_of
from tests.harness.command import run_quipu
from tests.harness.node import RunningNode, environment

START_SECONDS_AIM = 1.0


class Mistake(NamedTuple):
    why: str
    words: tuple[str, ...]
    code: int
    message: str  # a regular expression that the one line must match


MISTAKES = [
    Mistake("no value", ("--set", "foo"), 2, r"--set: write --set KEY=VALUE"),
    Mistake(
        "unknown setting", ("--set", "log.segment.byte=9"), 2, r"did you mean log\.segment\.by"
    ),
    Mistake("nothing near", ("--set", "qqqqqqqq=1"), 2, r"unknown setting qqqqqqqq"),
    Mistake("a word for a number", ("--set", "num.partitions=many"), 2, r"num\.partitions=many"),
    Mistake("out of range", ("--set", "num.partitions=0"), 2, r"num\.partitions=0 .*must be"),
    Mistake("not an address", ("--listen", "here"), 2, r"listeners=here .*must be one HOST:PORT"),
    Mistake("no such port", ("--listen", "127.0.0.1:70000"), 2, r"port from 0 to 65535"),
    Mistake("not a name", ("--name", "Node One"), 2, r"node\.name=Node One .*must be CHAIN-N"),
    Mistake("no such file", ("--config", "none.properties"), 1, r"cannot read --config none\.prop"),
    Mistake("a folder", ("--config", "."), 1, r"cannot read --config \.: Is a directory"),
    Mistake("two answers", ("--dir", "a", "--set", "log.dirs=b"), 2, r"--dir a and .* disagree"),
    Mistake("an unknown log format", ("--set", "logging.format=xml"), 2, r"must be text or json"),
    Mistake("every address", ("--listen", "0.0.0.0:0"), 1, r"set advertised\.listeners"),
    Mistake("no such host", ("--listen", "no-such-host.invalid:0"), 1, r"no-such-host\.invalid"),
]


@pytest.mark.parametrize("case", MISTAKES, ids=lambda case: case.why)
def test_a_mistake_is_one_clear_line(case: Mistake, tmp_path: Path) -> None:
    """K9: bad flags and settings each give one message that says what to do, and start nothing."""
    result = run_quipu("start", *case.words, cwd=tmp_path)

    assert result.code == case.code, result
    assert result.out == ""
    assert len(result.err.splitlines()) == 1, result.err
    assert re.search(case.message, result.err), result.err
    assert result.err.startswith("quipu: ")
    assert not any((tmp_path / "quipu-data").glob("*/*.log"))


def test_an_unknown_option_is_wrong_usage(tmp_path: Path) -> None:
    """K9: wrong usage is exit code 2."""
    result = run_quipu("start", "--bogus", cwd=tmp_path)

    assert (result.code, result.out) == (2, "")
    assert "unrecognized arguments: --bogus" in result.err


def test_mistakes_in_a_file_are_told_with_their_line(tmp_path: Path) -> None:
    """K9: a wrong line of a properties file is named."""
    file = tmp_path / "node.properties"
    file.write_text("# fine\nnum.partitions=3\nlog.retention.hour=1\n")

    result = run_quipu("start", "--config", str(file), cwd=tmp_path)

    assert result.code == 1
    assert "line 3" in result.err
    assert "did you mean log.retention.hours?" in result.err


def test_a_file_that_is_no_text_is_told(tmp_path: Path) -> None:
    """K9: a binary file is not read as settings."""
    file = tmp_path / "node.properties"
    file.write_bytes(b"\xff\xfe\x00")

    result = run_quipu("start", "--config", str(file), cwd=tmp_path)

    assert (result.code, len(result.err.splitlines())) == (1, 1)
    assert "not text in UTF-8" in result.err


def test_an_unknown_variable_is_told(tmp_path: Path) -> None:
    """K9: a typing mistake in the environment is not ignored."""
    result = run_quipu("start", cwd=tmp_path, variables={"QUIPU_NUM_PARTITION": "3"})

    assert result.code == 1
    assert "QUIPU_NUM_PARTITION" in result.err
    assert "num.partitions" in result.err


@pytest.mark.parametrize("how", ["-O", "-OO"])
def test_a_node_refuses_to_run_without_its_assertions(how: str, tmp_path: Path) -> None:
    """K9: python -O removes the checks that guard the data, so the node does not start."""
    result = run_quipu("start", cwd=tmp_path, python=(how,))

    assert (result.code, result.out) == (1, "")
    assert "python -O" in result.err
    assert not (tmp_path / "quipu-data").exists()


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    """K9: one line, exit code 1, and the address in it."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        result = run_quipu("start", "--listen", address, "--dir", str(tmp_path / "data"))

    assert (result.code, result.out) == (1, "")
    assert address in result.err.splitlines()[-1]
    assert "Traceback" not in result.err


def test_a_directory_serves_one_node(tmp_path: Path) -> None:
    """K9, T12: a second node on the same directory is refused and the first one goes on."""
    with RunningNode(tmp_path / "data") as node:
        other = RunningNode(node.directory)
        other.log_path = tmp_path / "other.stderr"
        with pytest.raises(NodeFailed, match="exit code 1"):
            other.start()

        assert str(node.directory) in other.log_text()
        assert "Traceback" not in other.log_text()
        assert node.runs


def test_a_directory_that_cannot_be_made_is_told() -> None:
    """K9: one line with the directory; not even root may make one here."""
    result = run_quipu("start", "--listen", "127.0.0.1:0", "--dir", "/proc/quipu-data")

    assert (result.code, result.out) == (1, "")
    assert "/proc/quipu-data" in result.err.splitlines()[-1]
    assert "Traceback" not in result.err


def test_a_directory_that_is_a_file_is_told(tmp_path: Path) -> None:
    """K9: one line with the path."""
    file = tmp_path / "data"
    file.write_text("precious")

    result = run_quipu("start", "--listen", "127.0.0.1:0", "--dir", str(file))

    assert (result.code, result.out) == (1, "")
    assert str(file) in result.err
    assert "Traceback" not in result.err
    assert file.read_text() == "precious"


def test_a_node_says_ready_once_and_stops_cleanly(tmp_path: Path) -> None:
    """K10: one line on standard output, SIGTERM ends it with exit code 0, and again on restart."""
    node = RunningNode(tmp_path / "data")
    for _ in range(2):
        node.start()
        assert node.port > 0
        socket.create_connection((node.host, node.port), timeout=5).close()
        stdout = node.process._process.stdout
        assert stdout is not None
        node.process.send(signal.SIGTERM)
        rest = stdout.read()
        assert (node.stop(), rest) == (0, b"")
    assert "Traceback" not in node.log_text()


def test_an_interrupt_stops_a_node_as_cleanly(tmp_path: Path) -> None:
    """K10: Ctrl-C is a clean stop."""
    with RunningNode(tmp_path / "data") as node:
        node.process.send(signal.SIGINT)
        assert node.process.await_end()
        assert node.process.code == 0
    assert "Traceback" not in node.log_text()


def test_start_to_ready_is_quick(tmp_path: Path) -> None:
    """K10: an empty directory serves after less than a second of CPU; the clock is the machine's,
    and machines are busy.
    """
    with RunningNode(tmp_path / "data") as node:
        seconds = usage_of(node.process.pid).cpu_seconds
        print(f"start to ready: {seconds * 1000:.0f} ms of CPU, {node.start_seconds * 1000:.0f} ms")
    assert 0 < seconds < START_SECONDS_AIM


def test_health_and_metrics_tell_the_truth_about_a_running_node(tmp_path: Path) -> None:
    """K9: ready while it serves; metrics have the process and the connections."""
    with RunningNode(tmp_path / "data") as node:
        with urllib.request.urlopen(f"{node.http}/health/ready", timeout=5) as answer:
            assert answer.status == 200
        with urllib.request.urlopen(f"{node.http}/metrics", timeout=5) as answer:
            text = answer.read().decode()
        assert "quipu_ready 1\n" in text
        assert re.search(r"^process_resident_memory_bytes \d{7,}$", text, re.MULTILINE)
        assert re.search(r'^quipu_build_info\{version="', text, re.MULTILINE)
        address = node.http
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"{address}/health/live", timeout=5)


def test_probes_are_answered_while_logs_are_recovered(tmp_path: Path) -> None:
    """K9, T12: after a crash a node is live but not ready until its logs are checked."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    answers: list[int] = []
    done = threading.Event()

    def probe() -> None:
        while not done.is_set():
            try:
                with urllib.request.urlopen(f"http://{address}/health/ready", timeout=5) as answer:
                    answers.append(answer.status)
            except urllib.error.HTTPError as error:
                answers.append(error.code)
            except OSError:
                answers.append(0)  # not started yet
            time.sleep(0.01)

    with RunningNode(tmp_path / "data", settings={"metrics.listener": address}) as node:
        result = run_quipu("topic", "create", "t", "--partitions", "1500", "-b", node.bootstrap)
        assert result.code == 0, result
        node.kill()
        thread = threading.Thread(target=probe)
        thread.start()
        node.start()
        time.sleep(0.3)
        done.set()
        thread.join()

    order = [status for status, _ in itertools.groupby(answers)]
    assert order[-2:] == [503, 200], order


def test_two_nodes_share_a_machine_without_being_told_ports(tmp_path: Path) -> None:
    """K9: the default port of the metrics is no reason to refuse a second node."""
    nodes = [RunningNode(tmp_path / name) for name in ("a", "b")]
    try:
        for node in nodes:
            node.settings.clear()
            node.start()
        assert nodes[0].http != nodes[1].http
    finally:
        for node in nodes:
            node.kill()


def test_logs_can_be_json(tmp_path: Path) -> None:
    """K9: every line of a node's log is a JSON object when it was asked to."""
    with RunningNode(tmp_path / "data", settings={"logging.format": "json"}) as node:
        node.stop()
    lines = [json.loads(line) for line in node.log_text().splitlines()]
    assert {"time", "level", "logger", "message"} <= lines[0].keys()


def test_a_variable_and_a_file_set_what_the_command_line_does_not(tmp_path: Path) -> None:
    """K9: file, then environment, then command line; the last one wins."""
    file = tmp_path / "node.properties"
    file.write_text(
        f"listeners=127.0.0.1:1\nlog.dirs={tmp_path}/from-file\nmetrics.listener=127.0.0.1:0\n"
    )
    variables = {**environment(), "QUIPU_LISTENERS": "127.0.0.1:0"}
    command = [sys.executable, "-m", "quipu", "start", "--config", str(file)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=variables
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"quipu ready 127.0.0.1:")
        assert (tmp_path / "from-file").is_dir()
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_importing_the_command_stays_light() -> None:
    """K10: `quipu start` imports neither the parser of the other commands nor a Kafka client."""
    program = (
        "import sys; from quipu.cli import start; import quipu.broker.node\n"
        "heavy = {'typer', 'rich', 'confluent_kafka', 'prometheus_client', 'uvicorn'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, env=environment()
    )
    print(f"import: {(time.monotonic() - begun) * 1000:.0f} ms")
    assert done.stdout.strip() == b"[]"


@pytest.mark.parametrize("words", [
    ("--set", "peer.secret hunter2"), ("--set", "peer.secre=hunter2"), ("--set", "peer.secret="),
    ("--set", "peer.listener=10.0.0.1:0", "--set", "peer.secret=hunter2"),
    ("--config", "wrong.properties"),
], ids=str)
def test_a_mistake_next_to_a_secret_does_not_print_it(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    """K8, K9: neither an error nor the log shows the value of a sensitive setting."""
    (tmp_path / "wrong.properties").write_text("peer.secret=hunter2\npeer.secret=hunter22\n")

    result = run_quipu("start", *words, cwd=tmp_path)

    assert result.code in (1, 2)
    assert "hunter2" not in result.err + result.out
    assert len(result.err.splitlines()) == 1


def test_help_says_where_secrets_belong() -> None:
    """K9: not on a command line, which others can read."""
    shown = " ".join(run_quipu("start", "--help").out.split())
    assert "Secrets, such as peer.secret, belong in the file or the environment" in shown

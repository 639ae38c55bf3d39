"""`quipu dev`: a cluster of processes that comes up, tells of losses, goes down and comes back."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from quipu.model.errors import Code
from quipu.wire.messages.k10003_describe_remote_segments import (
    DescribeRemoteSegmentsRequest,
    DescribeRemoteSegmentsResponse,
    RemoteSegmentsPartition,
    RemoteSegmentsTopic,
)
from tests.harness.command import run_quipu
from tests.harness.node import environment
from tests.harness.raw import RawConnection

pytestmark = pytest.mark.xdist_group("cluster")

WAIT_SECONDS_MAX = 60.0
QUICK = [word for pair in (
    "broker.heartbeat.interval.ms=100", "broker.session.timeout.ms=1500",
    "controller.quorum.election.timeout.ms=400", "controller.quorum.heartbeat.interval.ms=80",
) for word in ("--set", pair)]


class Dev:
    """One run of the command, with what it says as it goes."""

    def __init__(self, directory: Path, *words: str) -> None:
        self.directory = directory
        self.err_path = directory.with_name(f"{directory.name}.err")
        with self.err_path.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "quipu", "dev", "--dir", str(directory), *QUICK, *words],
                stdout=subprocess.PIPE, stderr=err, text=True, env=environment())
        self.rows: dict[str, dict[str, Any]] = {}

    @property
    def err(self) -> str:
        return self.err_path.read_text()

    def await_rows(self, count: int) -> None:
        """What it prints when the cluster is up."""
        assert self.process.stdout is not None
        for _ in range(count):
            line = self.process.stdout.readline()
            assert line, self.err
            row = json.loads(line)
            self.rows[row["node"]] = row

    def await_err(self, pattern: str) -> None:
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not re.search(pattern, self.err):
            assert time.monotonic() < deadline, self.err
            time.sleep(0.05)

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(WAIT_SECONDS_MAX)

    @property
    def bootstrap(self) -> str:
        return ",".join(row["address"] for row in self.rows.values())

    def quipu(self, *words: str, stdin: str = "") -> str:
        done = run_quipu(*words, "--bootstrap", self.bootstrap, stdin=stdin)
        assert done.code == 0, done.err
        return done.out


@contextmanager
def running(directory: Path, *words: str, nodes: int) -> Iterator[Dev]:
    """A cluster that is up; ended in any case, with all its processes."""
    dev = Dev(directory, *words, "--json")
    try:
        dev.await_rows(nodes)
        yield dev
    finally:
        if dev.process.poll() is None:
            dev.end(signal.SIGTERM)
        assert dev.process.stdout is not None
        dev.process.stdout.close()
        for row in dev.rows.values():
            assert not lives(row["pid"])


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_cluster_of_one_comes_back_as_it_was(tmp_path: Path) -> None:
    """V2, V16: the second start has the same addresses and the same topics."""
    directory = tmp_path / "dev"
    with running(directory, "--nodes", "1", "--base-port", "0", "--racks", "x", nodes=1) as dev:
        first = dev.rows["a-0"]
        assert (first["chain"], first["id"], first["rack"]) == ("a", 1, "x")
        dev.quipu("topic", "create", "kept")
        (chain,) = map(json.loads, dev.quipu("chain", "list", "--json").splitlines())
        assert [member["name"] for member in chain["members"]] == ["a-0"]
        second = run_quipu("dev", "--dir", str(directory))
        assert (second.code, second.out) == (1, "")
        assert "another quipu dev runs on" in second.err
        assert dev.end() == 0
        assert "stopping" in dev.err
    with running(directory, nodes=1) as dev:
        assert dev.rows["a-0"]["address"] == first["address"]
        assert "kept" in dev.quipu("topic", "list")


def test_three_nodes_serve_and_the_loss_of_one_is_told(tmp_path: Path) -> None:
    """V2, V5: real processes in one chain; one that is killed is told about, and can be started
    again by hand.  R13: one setting gives all of them a remote tier.
    """
    with running(tmp_path / "dev", "--base-port", "0",
                 "--set", "remote.log.storage.system.enable=true", nodes=3) as dev:
        (chain,) = map(json.loads, dev.quipu("chain", "describe", "a", "--json").splitlines())
        assert [(each["name"], each["state"]) for each in chain["members"]] == [
            ("a-0", "serving"), ("a-1", "serving"), ("a-2", "serving")]
        dev.quipu("topic", "create", "t", "-c", "min.insync.replicas=2",
                  "-c", "remote.storage.enable=true")
        assert dev.quipu("remote", "list", "t") == ""
        host, _, port = dev.rows["a-2"]["address"].rpartition(":")
        with RawConnection(host, int(port)) as tail:
            refused = tail.ask(DescribeRemoteSegmentsRequest(topics=[RemoteSegmentsTopic(
                name="t", partitions=[RemoteSegmentsPartition(partition_index=0)])]), 0)
        assert isinstance(refused, DescribeRemoteSegmentsResponse)
        assert refused.topics[0].partitions[0].error_code == Code.NOT_LEADER_OR_FOLLOWER
        assert (tmp_path / "dev" / "remote").is_dir()
        dev.quipu("produce", "t", stdin="one\ntwo\n")
        assert dev.quipu("consume", "t", "--exit") == "one\ntwo\n"
        lost = dev.rows["a-1"]
        os.kill(lost["pid"], signal.SIGKILL)
        dev.await_err(r"a-1 \(process \d+\) ended with SIGKILL; to start it again: quipu start "
                      rf"--config {re.escape(lost['config'])}")
        dev.quipu("produce", "t", stdin="three\n")
        assert dev.quipu("consume", "t", "--exit") == "one\ntwo\nthree\n"
        assert dev.process.poll() is None
        assert dev.end(signal.SIGTERM) == 0


def test_a_node_that_cannot_start_ends_all(tmp_path: Path) -> None:
    """K9: with its last words, and nothing is left running."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_quipu("dev", "--dir", str(tmp_path / "a"), "--base-port", str(port))
        assert (done.code, done.out) == (1, "")
        assert re.search(rf"port {port} for a-0: Address already in use", done.err)
    done = run_quipu("dev", "--dir", str(tmp_path / "b"), "--nodes", "1", "--base-port", "0",
                     "--set", "broker.session.timeout.ms=10")
    assert done.code == 1
    *said, last = done.err.splitlines()
    assert said[-1].startswith("a-0: quipu: broker.session.timeout.ms=10 must be at least twice")
    assert re.match(r"quipu: a-0 \(process \d+\) ended with exit code 1", last)


def test_mistakes_are_told_before_anything_is_made(tmp_path: Path) -> None:
    """K9: one line, and no directory full of beginnings."""
    for words, message in [
        (["--set", "num.partition=1"], "did you mean num.partitions?"),
        (["--chain", "A"], "lower-case letters"),
        (["--nodes", "0"], "Invalid value for '--nodes'"),
    ]:
        done = run_quipu("dev", "--dir", str(tmp_path / "dev"), *words)
        assert done.code in (1, 2)
        assert message in done.err
    assert not list(tmp_path.glob("dev/*.properties"))

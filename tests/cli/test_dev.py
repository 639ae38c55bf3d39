"""`quipu dev`: a cluster of processes that comes up, tells of losses, goes down and comes back."""

import json
import os
import re
import signal
import socket
from pathlib import Path

import pytest

from quipu.model.errors import Code
from quipu.wire.messages.k10003_describe_remote_segments import (
    DescribeRemoteSegmentsRequest,
    DescribeRemoteSegmentsResponse,
    RemoteSegmentsPartition,
    RemoteSegmentsTopic,
)
from tests.cli.dev_run import running
from tests.harness.command import run_quipu
from tests.harness.raw import RawConnection

pytestmark = pytest.mark.xdist_group("cluster")

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
        every = ",".join(row["address"] for row in dev.rows.values())
        dev.await_err(rf"for other commands:  export QUIPU_BOOTSTRAP={re.escape(every)}")
        dev.quipu("topic", "create", "t", "-c", "remote.storage.enable=true")
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
        lost = dev.rows["a-0"]
        os.kill(lost["pid"], signal.SIGKILL)
        dev.await_err(r"a-0 \(process \d+\) ended with SIGKILL; to start it again: quipu start "
                      rf"--config {re.escape(lost['config'])}")
        known = {"QUIPU_BOOTSTRAP": every}  # the first of them does not respond
        sent = run_quipu("produce", "t", stdin="three\n", variables=known)
        assert sent.code == 0, sent
        read = run_quipu("consume", "t", "--exit", variables=known)
        assert (read.code, read.out) == (0, "one\ntwo\nthree\n"), read
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

"""`quipu config`: what is wrong with a file, and what is in force."""

import json
from pathlib import Path

from tests.harness.command import run_quipu
from tests.harness.node import RunningNode

GOOD = """\
# A comment, and an entry over two lines.
listeners=PLAINTEXT://127.0.0.1:9092
num.io.threads=16
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,\\
    SSL:SSL
log.retention.hours=24
peer.secret=hunter2-hunter2-hunter2
"""
BAD = """\
listeners=SSL://127.0.0.1:9092
num.io.thread=3
num.partitions=0
ssl.keystore.password=hunter2
=x
log.dirs=/a,/b
queued.max.requests=7
num.partitions=2
"""


def written(tmp_path: Path, content: str) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(content)
    return path


def test_everything_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    """K5, K8: with its line, the nearest name, and no secret; exit code 1."""
    path = written(tmp_path, BAD)

    told = run_quipu("config", "check", str(path))

    lines = told.out.splitlines()
    assert told.code == 1
    assert [line.split(":")[1:3] for line in lines] == [
        [number, f" {level}"] for number, level in (
            ("2", "error"), ("3", "error"), ("4", "error"), ("5", "error"), ("6", "error"),
            ("7", "warning"), ("8", "error"))]
    assert "did you mean num.io.threads?" in lines[0]
    assert "must be an integer from 1" in lines[1]
    assert "this version has no TLS" in lines[2]
    assert "KEY=VALUE" in lines[3]
    assert "one directory" in lines[4]
    assert "no effect: requests that wait are limited by their bytes" in lines[5]
    assert "given twice" in lines[6]
    assert "hunter2" not in told.out + told.err
    assert "6 errors, 1 warning" in told.err


def test_values_that_contradict_each_other_are_told_together(tmp_path: Path) -> None:
    """K5: each group of rules finds its own; what follows from another mistake is left out."""
    path = written(tmp_path, "listeners=SSL://h:1\ngroup.min.session.timeout.ms=7000000\n"
                             "controller.quorum.voters=1@h:1,2@h:2\nbroker.lease.ms=11\n")

    rows = [json.loads(line) for line in run_quipu("config", "check", str(path), "--json")
            .out.splitlines()]

    assert [(row["line"], row["setting"], row["level"]) for row in rows] == [
        (1, "listeners", "error"), (2, "group.min.session.timeout.ms", "error"),
        (3, "controller.quorum.voters", "error")]
    follows = run_quipu("config", "check", str(written(tmp_path, "listeners=a b\n"))).out
    assert len(follows.splitlines()) == 1


def test_a_file_that_a_node_starts_with(tmp_path: Path) -> None:
    """K5: exit code 0, with warnings; --set and the environment count as for a start."""
    path = written(tmp_path, GOOD)

    told = run_quipu("config", "check", str(path))
    assert (told.code, "a node starts with it; 0 errors, 1 warning" in told.err) == (0, True)
    assert "server.properties:3: warning: num.io.threads has no effect" in told.out
    worse = run_quipu("config", "check", str(path), "--set", "num.partitions=none")
    assert (worse.code, "--set num.partitions" in worse.out) == (1, True)
    nowhere = run_quipu("config", "check", str(tmp_path / "no.properties"))
    assert (nowhere.code, "cannot read" in nowhere.err) == (1, True)


def test_what_would_be_in_force_is_shown_with_its_source(tmp_path: Path) -> None:
    """K5, K8: defaults, lines of the file and --set; a secret is hidden."""
    path = written(tmp_path, GOOD)

    told = run_quipu("config", "show", "--config", str(path), "--set", "num.partitions=3", "--json")

    rows = {row["name"]: row for row in map(json.loads, told.out.splitlines())}
    assert rows["log.retention.hours"]["value"] == "24"
    assert rows["log.retention.hours"]["source"] == f"{path} line 6"
    assert rows["num.partitions"]["source"] == "--set num.partitions"
    assert rows["log.segment.bytes"]["source"] == "default"
    assert rows["peer.secret"]["value"] == "[hidden]"
    assert "hunter2" not in told.out
    assert not rows["num.io.threads"]["has_effect"]
    assert "num.network.threads" not in rows
    every = run_quipu("config", "show", "--all").out
    assert "num.network.threads" in every
    given = run_quipu("config", "show", "--config", str(path), "--given", "--json").out
    assert len(given.splitlines()) == 5
    bad = run_quipu("config", "show", "--set", "num.partitions=none")
    assert (bad.code, "must be an integer" in bad.err) == (1, True)


def test_a_running_broker_shows_what_is_in_force(tmp_path: Path) -> None:
    """K5, K8: its file, what was changed while it runs, and the defaults."""
    with RunningNode(tmp_path / "data", settings={
            "peer.secret": "hunter2-hunter2-hunter2", "log.retention.hours": "24"}) as node:
        told = run_quipu("config", "show", "--bootstrap", node.bootstrap, "--json")
        other = run_quipu("config", "show", "--bootstrap", node.bootstrap, "--node", "7")

    rows = {row["name"]: row for row in map(json.loads, told.out.splitlines())}
    assert rows["log.retention.hours"]["value"] == "24"
    assert rows["log.retention.hours"]["source"] == "configuration of the broker"
    assert rows["peer.secret"]["value"] == "[hidden]"
    assert rows["log.segment.bytes"]["source"] == "default"
    assert "hunter2" not in told.out
    assert (other.code, "there is no broker 7; there are 1" in other.err) == (1, True)

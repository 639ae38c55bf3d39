"""topic, group, produce and consume against a real node, as a person types them."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.harness.command import Result, run_quipu
from tests.harness.node import RunningNode, environment

pytestmark = pytest.mark.xdist_group("cli-commands")  # one node serves them all


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A node for all tests here; each uses topics and groups of its own."""
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with RunningNode(tmp_path_factory.mktemp("cli") / "data", settings=settings) as running:
        yield running


def quipu(node: RunningNode, *words: str, stdin: str | bytes = b"") -> Result:
    return run_quipu(*words, "--bootstrap", node.bootstrap, stdin=stdin)


def ok(node: RunningNode, *words: str, stdin: str | bytes = b"") -> str:
    """The output of a command that must work."""
    result = quipu(node, *words, stdin=stdin)
    assert result.code == 0, result
    return result.out


def rows(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_the_life_of_a_topic(node: RunningNode) -> None:
    """K5: create, list, describe, alter and delete."""
    result = quipu(node, "topic", "create", "life", "--partitions", "2", "-c", "retention.ms=1000")
    assert (result.code, result.err) == (0, "created life with 2 partitions\n")
    again = quipu(node, "topic", "create", "life")
    assert again.code == 1
    assert "TOPIC_ALREADY_EXISTS" in again.err
    assert quipu(node, "topic", "create", "life", "--if-not-exists").err == (
        "life exists already\n"
    )
    listed = {row["topic"]: row for row in rows(ok(node, "topic", "list", "--json"))}
    assert listed["life"] == {
            "topic": "life", "partitions": 2, "replicas": 1, "offline": 0}

    ok(node, "topic", "alter", "life", "--partitions", "3", "-c", "max.message.bytes=2000",
       "--reset", "retention.ms")  # fmt: skip
    (topic,) = rows(ok(node, "topic", "describe", "life", "--json"))
    assert topic["config"] == {"max.message.bytes": "2000"}
    parts = topic["partitions"]
    assert isinstance(parts, list)
    assert [part["partition"] for part in parts] == [0, 1, 2]
    fewer = quipu(node, "topic", "alter", "life", "--partitions", "1")
    assert (fewer.code, fewer.err) == (
        1, "quipu: life has 3 partitions; their number can only grow\n",
    )  # fmt: skip

    ok(node, "topic", "delete", "life")
    assert "life" not in ok(node, "topic", "list")


def test_lines_go_in_and_come_out(node: RunningNode) -> None:
    """K2: produce lines with keys and headers, consume them as lines and as JSON."""
    ok(node, "topic", "create", "lines")
    sent = quipu(
        node, "produce", "lines", "-k", ":", "--header", "a=1", "--header", "a=2",
        stdin="k1:v1\nk2:\nk3:ä\n",
    )  # fmt: skip
    assert sent.err == "produced 3 records, 4 bytes: lines-0 at 0..2\n"

    assert ok(node, "consume", "lines", "--exit") == "v1\n\nä\n"
    assert ok(node, "consume", "lines", "--exit", "-k", "=") == "k1=v1\nk2=\nk3=ä\n"
    first, *_, last = rows(ok(node, "consume", "lines", "--exit", "--json"))
    assert first["key"] == "k1"
    assert first["headers"] == [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]
    assert (last["offset"], last["value"], last["timestamp_type"]) == (2, "ä", "create")


def test_bytes_that_are_no_text_survive(node: RunningNode) -> None:
    """K2: values are bytes; JSON shows those that are not UTF-8 in base64."""
    ok(node, "topic", "create", "bytes")
    ok(node, "produce", "bytes", stdin=b"\xff\x00\n")

    (row,) = rows(ok(node, "consume", "bytes", "--exit", "--json"))
    assert (row["value"], row["value_base64"], row["key"]) == (None, "/wA=", None)


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_every_compression(node: RunningNode, compression: str) -> None:
    """K2: compressed batches come back as they went in, from an idempotent producer too."""
    topic = f"packed-{compression}"
    lines = "".join(f"{'x' * 50} {number}\n" for number in range(1000))
    ok(node, "topic", "create", topic)
    ok(node, "produce", topic, "--compression", compression, "--idempotent", stdin=lines)

    assert ok(node, "consume", topic, "--exit") == lines


def test_positions(node: RunningNode) -> None:
    """K2: from and to, by offset, from the end, and by time; count and partition."""
    ok(node, "topic", "create", "places", "--partitions", "2")
    ok(node, "produce", "places", "--partition", "0", stdin="a\nb\nc\nd\n")
    ok(node, "produce", "places", "--partition", "1", stdin="z\n")
    (time_row, *_) = rows(ok(node, "consume", "places", "--exit", "--json", "--partition", "1"))

    def read(*words: str) -> list[str]:
        return ok(node, "consume", "places", "--partition", "0", *words).split()

    assert read("--from", "1", "--to", "3") == ["b", "c"]
    assert read("--from", "-1", "--exit") == ["d"]
    assert read("--from", "end", "--exit") == []
    assert read("--count", "2") == ["a", "b"]
    assert read("--from", "1h", "--exit") == ["a", "b", "c", "d"]
    assert read("--to", "1970-01-02") == []
    moment = f"@{time_row['timestamp']}"
    assert ok(node, "consume", "places", "--from", moment, "--exit") == "z\n"


def test_groups_go_on_where_they_were(node: RunningNode) -> None:
    """K3: a group's progress, lag, reset and deletion."""
    ok(node, "topic", "create", "work")
    ok(node, "produce", "work", stdin="1\n2\n3\n4\n")

    assert ok(node, "consume", "work", "--group", "team", "--count", "3") == "1\n2\n3\n"
    (group,) = rows(ok(node, "group", "describe", "team", "--json"))
    assert group["lag"] == 1
    assert group["partitions"] == [
        {"topic": "work", "partition": 0, "offset": 3, "end": 4, "lag": 1, "consumer": None}
    ]
    assert ok(node, "consume", "work", "--group", "team", "--exit") == "4\n"
    assert "work" in ok(node, "group", "describe", "team")

    dry = ok(node, "group", "reset", "team", "--to", "-2", "--dry-run", "--json")
    assert rows(dry) == [{"topic": "work", "partition": 0, "before": 4, "after": 2}]
    assert ok(node, "consume", "work", "--group", "team", "--exit") == ""
    ok(node, "group", "reset", "team", "--to", "-2")
    assert ok(node, "consume", "work", "--group", "team", "--exit") == "3\n4\n"

    assert {"group": "team", "state": "EMPTY"} in rows(ok(node, "group", "list", "--json"))
    ok(node, "group", "delete", "team")
    assert "team" not in ok(node, "group", "list")


def test_a_group_with_members_is_not_reset(node: RunningNode) -> None:
    """K3: offsets of a group at work do not change under its feet."""
    ok(node, "topic", "create", "busy")
    ok(node, "produce", "busy", stdin="1\n")
    with _consumer(node, "busy", "--group", "crew") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        described = rows(ok(node, "group", "describe", "crew", "--json"))[0]
        assert described["state"] == "STABLE"
        members = described["members"]
        assert isinstance(members, list)
        assert members[0]["partitions"] == ["busy-0"]

        result = quipu(node, "group", "reset", "crew", "--to", "beginning")

        assert result.code == 1
        assert "are its consumers stopped?" in result.err
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130


def test_a_consumer_follows_and_ends_cleanly_when_interrupted(node: RunningNode) -> None:
    """K2: new records appear at once; Ctrl-C is exit code 130 without a traceback."""
    ok(node, "topic", "create", "live")
    with _consumer(node, "live") as process:
        time.sleep(1)
        ok(node, "produce", "live", stdin="news\n")
        assert process.stdout is not None
        assert process.stdout.readline() == b"news\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_a_reader_that_has_seen_enough_is_no_error(node: RunningNode) -> None:
    """K9: `quipu consume | head` ends quietly, as any other program does."""
    ok(node, "topic", "create", "long")
    ok(node, "produce", "long", stdin="".join(f"{'x' * 100}{n}\n" for n in range(20_000)))
    with _consumer(node, "long", "--exit") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"x" * 100 + b"0\n"
        process.stdout.close()
        assert process.wait(30) == 141
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_a_record_that_is_too_large_is_told(node: RunningNode) -> None:
    """K2: what the broker refuses is an error with its reason, and the rest is delivered."""
    ok(node, "topic", "create", "small", "-c", "max.message.bytes=1000")

    result = quipu(node, "produce", "small", stdin="x" * 5000 + "\n")

    assert result.code == 1
    assert "1 record not delivered" in result.err
    assert "MSG_SIZE_TOO_LARGE" in result.err


def test_a_bad_line_ends_the_run_and_keeps_what_came_before(node: RunningNode) -> None:
    """K2: the message says which line, and how much was delivered."""
    ok(node, "topic", "create", "keyed")

    result = quipu(node, "produce", "keyed", "-k", ":", stdin="a:1\nb:2\noops\nc:3\n")

    assert result.code == 1
    assert "line 3 has no key separator ':'" in result.err
    assert "2 records before it delivered" in result.err
    assert ok(node, "consume", "keyed", "--exit") == "1\n2\n"


class Mistake(NamedTuple):
    why: str
    words: tuple[str, ...]
    code: int
    message: str


MISTAKES = [
    Mistake("unknown topic", ("consume", "plases"), 1, "no topic plases; did you mean places?"),
    Mistake("nothing near", ("produce", "qqqq"), 1, "create it with `quipu topic create qqqq`"),
    Mistake("delete what is not", ("topic", "delete", "qqqq"), 1, "there is no topic qqqq"),
    Mistake("a group that is not", ("group", "describe", "qqqq"), 1, "there is no group qqqq"),
    Mistake("a group to delete", ("group", "delete", "qqqq"), 1, "there is no group qqqq"),
    Mistake("a new group", ("group", "reset", "qqqq", "--to", "end"), 1, "with --topic TOPIC"),
    Mistake("no such partition", ("consume", "places", "--partition", "9"), 1, "and no 9"),
    Mistake("nor to write", ("produce", "places", "--partition", "9"), 1, "partitions 0 to 1"),
    Mistake("a bad name", ("topic", "create", "a/b"), 1, "cannot create topic a/b"),
    Mistake("a bad setting", ("topic", "create", "n", "-c", "retention.mss=1"), 1, "retention.ms"),
    Mistake("a bad value", ("topic", "create", "n", "-c", "retention.ms=x"), 1, "retention.ms"),
    Mistake("no setting", ("topic", "create", "n", "-c", "retention.ms"), 2, "write KEY=VALUE"),
    Mistake("no partition", ("topic", "create", "n", "--partitions", "0"), 2, "at least one"),
    Mistake("nothing to do", ("topic", "alter", "places"), 2, "nothing to change"),
    Mistake("no place", ("consume", "places", "--from", "noon"), 2, "write beginning, end"),
    Mistake("no file", ("produce", "places", "--file", "none.txt"), 1, "cannot read none.txt"),
    Mistake("a pair that cannot be", ("produce", "places", "--idempotent", "--acks", "1"), 2,
            "needs --acks all"),
    Mistake("another", ("consume", "places", "--group", "g", "--partition", "0"), 2, "--partition"),
    Mistake("unknown option", ("topic", "list", "--jsn"), 2, "No such option"),
    Mistake("unknown command", ("topik",), 2, "did you mean topic?"),
]  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES, ids=lambda case: case.why)
def test_a_mistake_is_one_clear_message(node: RunningNode, case: Mistake) -> None:
    """K9: bad input anywhere says what to do; 1 for what failed, 2 for wrong usage."""
    ok(node, "topic", "create", "places", "--partitions", "2", "--if-not-exists")

    result = quipu(node, *case.words)

    assert result.code == case.code, result
    assert result.out == ""
    assert case.message in " ".join(result.err.split()), result.err
    assert "Traceback" not in result.err
    if case.code == 1:
        assert len(result.err.splitlines()) == 1, result.err


def test_a_broker_that_is_not_there_is_told_at_once() -> None:
    """K9: nobody waits for a connection that is refused."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    begun = time.monotonic()

    result = run_quipu("topic", "list", "--bootstrap", f"127.0.0.1:{port}")

    assert result.code == 1
    assert f"no broker responds at 127.0.0.1:{port} (Connection refused)" in result.err
    assert "quipu start" in result.err
    assert time.monotonic() - begun < 15


def test_something_that_is_no_broker_is_told_soon() -> None:
    """K9: a port that accepts and stays silent does not hang the command."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        begun = time.monotonic()

        result = run_quipu("topic", "list", "--bootstrap", f"127.0.0.1:{port}")

    assert result.code == 1
    assert "does not respond as a Kafka broker" in result.err
    assert time.monotonic() - begun < 20


def test_help_lists_every_command() -> None:
    """K9: what there is can be found without a manual."""
    result = run_quipu("--help")

    assert result.code == 0
    for name in ("start", "topic", "group", "produce", "consume", "log", "bench"):
        assert f"\n  {name} " in result.out, name


def _consumer(node: RunningNode, topic: str, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "quipu", "consume", topic, "-b", node.bootstrap, *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
    )  # fmt: skip


def test_a_file_is_read_like_standard_input(node: RunningNode, tmp_path: Path) -> None:
    """K2: `--file` takes lines from a file; carriage returns belong to the line's end."""
    ok(node, "topic", "create", "filed")
    file = tmp_path / "lines.txt"
    file.write_bytes(b"one\r\ntwo" + os.linesep.encode())

    summary = rows(ok(node, "produce", "filed", "--file", str(file), "--json"))

    assert summary == [
        {
            "topic": "filed", "records": 2, "bytes": 6, "failed": 0,
            "partitions": [{"partition": 0, "first_offset": 0, "last_offset": 1}],
        }
    ]  # fmt: skip
    assert ok(node, "consume", "filed", "--exit") == "one\ntwo\n"

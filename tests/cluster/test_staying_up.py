"""What still works while a part of the cluster is away, and what is said of the rest.

Two chains of two nodes; three of the nodes elect the controller.  Chain b is killed: topics on it
have no leader.  Topic `half` has partition 0 on chain a, and partition 1 on chain b.
"""

import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from quipu.cli.waiting import SILENCE_SECONDS
from tests.harness.cluster import RunningCluster
from tests.harness.command import Result, run_quipu
from tests.harness.node import environment

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.timeout(240)]
OFFLINE = "half-1 is offline: it has no leader"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    directory = tmp_path_factory.mktemp("staying-up")
    with RunningCluster(directory, nodes=2, chains=("a", "b")) as running:
        nodes = {name: [running.node_id(each) for each in members]
                 for name, members in running.chains.items()}
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        halves = NewTopic(
            "half", num_partitions=2, replica_assignment=[nodes["a"], nodes["b"]])
        admin.create_topics([halves])["half"].result(30)
        yield running


@pytest.fixture
def half(cluster: RunningCluster) -> Iterator[RunningCluster]:
    """The cluster without chain b, which comes back at the end."""
    for name in cluster.chains["b"]:
        cluster[name].kill()
    for _ in cluster.until("chain b has no leader"):
        listed = rows(quipu(cluster, "topic", "list", "--json"))
        if any(row["topic"] == "half" and row["offline"] == 1 for row in listed):
            break
    yield cluster
    cluster.launch([name for name in cluster.chains["b"] if not cluster[name].runs])
    cluster.await_serving("b")


def quipu(cluster: RunningCluster, *words: str, stdin: str = "") -> Result:
    """A command that knows all nodes from its environment, dead ones first."""
    return run_quipu(*words, stdin=stdin, variables={"QUIPU_BOOTSTRAP": bootstrap(cluster)})


def bootstrap(cluster: RunningCluster) -> str:
    return ",".join(node.bootstrap for node in reversed(cluster.nodes.values()))


def rows(result: Result) -> list[dict[str, Any]]:
    assert result.code == 0, result
    return [json.loads(line) for line in result.out.splitlines()]


def get(cluster: RunningCluster, name: str, path: str) -> tuple[int, str]:
    with urllib.request.urlopen(cluster[name].http + path, timeout=10) as response:
        return response.status, response.read().decode()


def metrics(cluster: RunningCluster, name: str) -> dict[str, float]:
    lines = get(cluster, name, "/metrics")[1].splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
            for line in lines if line and not line.startswith("#")}


def test_a_topic_with_an_offline_partition_is_described(half: RunningCluster) -> None:
    """K5, K9: the offsets of the others, a dash and a note for the one without a leader."""
    shown = quipu(half, "topic", "describe", "half")
    assert shown.code == 0
    assert OFFLINE in shown.err
    offline = next(line.split() for line in shown.out.splitlines() if line.split()[0] == "1")
    assert offline[1] == offline[4] == offline[5] == offline[6] == "-", shown.out

    (topic,) = rows(quipu(half, "topic", "describe", "half", "--json"))
    one, other = topic["partitions"]
    assert (one["offline"], one["start"], one["leader"] in one["replicas"]) == (False, 0, True)
    assert (other["offline"], other["leader"], other["end"]) == (True, None, None)
    listed = quipu(half, "topic", "list")
    assert listed.out.splitlines()[0].split() == ["TOPIC", "PARTITIONS", "REPLICAS", "OFFLINE"]


def test_records_without_a_key_go_to_partitions_that_have_a_leader(half: RunningCluster) -> None:
    """K2, K9: at once and all of them; those of the others are read, and the command fails,
    because one partition was not.
    """
    before = rows(quipu(half, "topic", "describe", "half", "--json"))[0]["partitions"][0]["end"]
    sent = quipu(half, "produce", "half", stdin="".join(f"{number}\n" for number in range(3000)))
    assert sent.code == 0, sent.err
    assert OFFLINE in sent.err
    assert f"half-0 at {before}..{before + 2999}" in sent.err

    read = quipu(half, "consume", "half", "--from", "-3000", "--exit")
    assert read.out.split() == [str(number) for number in range(3000)]
    assert (read.code, "not all was read: half-1 is offline" in read.err) == (1, True)
    one = quipu(half, "consume", "half", "--partition", "0", "--from", "-1", "--exit")
    assert (one.code, one.out) == (0, "2999\n"), one.err


def test_records_whose_key_needs_the_offline_partition_say_so(half: RunningCluster) -> None:
    """K2, K9: they wait for a leader, with the reason after 3 s, and fail by name of the partition;
    the others are delivered.
    """
    lines = "".join(f"k{number}:v\n" for number in range(20))
    sent = quipu(half, "produce", "half", "-k", ":", "--json", stdin=lines)
    assert sent.code == 1
    told = json.loads(sent.out)
    assert told["records"] + told["failed"] == 20
    assert min(told["records"], told["failed"]) > 0, told
    assert f"waiting for {SILENCE_SECONDS:.0f} s: {OFFLINE}" in sent.err
    assert f"{told['failed']} records not delivered" in sent.err.splitlines()[-1]
    assert OFFLINE in sent.err.splitlines()[-1]


def test_an_offline_partition_is_read_when_it_has_a_leader_again(half: RunningCluster) -> None:
    """V16, K9: a reader that follows tells what it waits for, and goes on by itself."""
    reader = subprocess.Popen(
        [sys.executable, "-m", "quipu", "consume", "half", "--from", "end", "--count", "1",
         "--bootstrap", bootstrap(half)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    told: list[str] = []
    assert reader.stderr is not None
    lines = threading.Thread(target=lambda: told.extend(
        line.decode() for line in reader.stderr or ()))
    lines.start()
    try:
        for _ in half.until("the reader has told what it waits for"):
            if any(line.startswith("waiting for") and OFFLINE in line for line in told):
                break
        half.launch(half.chains["b"])
        half.await_serving("b")
        producer = Producer({"bootstrap.servers": half.bootstrap, "log_level": 0})
        for _ in half.until("the record is read"):
            producer.produce("half", b"back", partition=1)
            producer.flush(10)
            if reader.poll() is not None:
                break
        assert reader.stdout is not None
        assert (reader.returncode, reader.stdout.read()) == (0, b"back\n")
    finally:
        reader.kill()
        reader.wait(10)
        lines.join(10)
        reader.stdout.close()
        reader.stderr.close()
    assert any(line.startswith("going on after") for line in told), told


def test_groups_of_a_coordinator_that_is_away_are_not_said_to_be_gone(
    cluster: RunningCluster,
) -> None:
    """K3, K9: of each group it is said that its coordinator is away, or what it has; never that
    there is none.
    """
    names = [f"group-{number}" for number in range(8)]  # over four partitions, on both chains
    for name in names:
        done = quipu(cluster, "group", "reset", name, "--topic", "half:0", "--to", "0")
        assert done.code == 0, done
    for name in cluster.chains["b"]:
        cluster[name].kill()
    try:
        for _ in cluster.until("a coordinator is away"):
            listed = quipu(cluster, "group", "list")
            if listed.code == 1:
                break
        assert "groups may be missing" in listed.err
        assert "__consumer_offsets" in listed.err
        known = [line.split()[0] for line in listed.out.splitlines()[1:]]
        assert 0 < len(known) < len(names)
        there = quipu(cluster, "group", "describe", known[0])
        assert there.code == 0, there
        lost = next(name for name in names if name not in known)
        wanted = (("describe", lost), ("delete", lost),
                  ("reset", lost, "--topic", "half:0", "--to", "0"))
        with ThreadPoolExecutor(len(wanted)) as at_once:  # each waits half a minute for it
            for away in at_once.map(lambda words: quipu(cluster, "group", *words), wanted):
                assert away.code == 1
                assert f"the coordinator of group {lost} is not available" in away.err
                assert "there is no group" not in away.err
    finally:
        cluster.launch(cluster.chains["b"])
        cluster.await_serving("b")
    for _ in cluster.until("all groups are there again"):
        listed = quipu(cluster, "group", "list")
        if listed.code == 0:
            break
    assert set(names) <= {line.split()[0] for line in listed.out.splitlines()[1:]}


def test_every_node_reports_a_chain_without_a_leader(half: RunningCluster) -> None:
    """K9, V5: in its metrics and in the body of its health, while it stays ready itself."""
    for name in half.chains["a"]:
        for _ in half.until(f"{name} knows it"):
            found = metrics(half, name)
            if found['quipu_chain_has_leader{chain="b"}'] == 0:
                break
        assert found['quipu_chain_has_leader{chain="a"}'] == 1
        assert found["quipu_partitions_offline"] >= 1
        assert found["quipu_lease_held"] == 1
        assert found['quipu_chain_members{chain="a",state="serving"}'] == 2
        status, body = get(half, name, "/health/ready")
        assert (status, json.loads(body)["status"]) == (200, "ready")
        assert "chain b: it has no leader and takes no writes" in body


def test_a_leader_reports_the_writes_that_it_would_refuse(cluster: RunningCluster) -> None:
    """K9, V5, V21: with their partitions and the reason; it stays ready, for it serves reads."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    nodes = [cluster.node_id(name) for name in cluster.chains["a"]]
    strict = NewTopic("strict", num_partitions=1, replica_assignment=[nodes],
                      config={"min.insync.replicas": "0"})
    admin.create_topics([strict])["strict"].result(30)
    head, tail = list(cluster.states("a"))
    cluster[tail].kill()
    try:
        for _ in cluster.until("the head is alone"):
            found = metrics(cluster, head)
            if found["quipu_partitions_under_min_isr"] == 1:
                break
        assert found['quipu_partition_under_min_isr{topic="strict",partition="0"}'] == 1
        status, body = get(cluster, head, "/health/ready")
        assert status == 200
        (told,) = [each for each in json.loads(body)["warnings"] if each.startswith("writes")]
        assert "refuse writes (strict-0): strict-0: 1 of 2 replicas is in sync" in told
        begun = time.monotonic()
        sent = subprocess.Popen(
            [sys.executable, "-m", "quipu", "produce", "strict", "--bootstrap",
             bootstrap(cluster)],
            stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
        assert sent.stdin is not None
        assert sent.stderr is not None
        sent.stdin.write(b"a line of somebody who types\n")
        sent.stdin.flush()  # and leaves it open
        first = sent.stderr.readline().decode()
        print(f"told after {time.monotonic() - begun:.1f} s: {first}")
        assert first.startswith("waiting for 3 s: too few replicas of strict-0 are in sync: 1 of 2")
    finally:
        cluster[tail].start()
    cluster.await_serving("a")
    assert sent.stderr.readline().decode().startswith(("going on after", "waiting for"))
    _, rest = sent.communicate(timeout=60)
    assert (sent.returncode, b"produced 1 record" in rest) == (0, True), rest


def test_commands_try_every_address_and_name_each_that_fails(
    cluster: RunningCluster,
) -> None:
    """K9: a list, of which one responds, is enough; if none does, each is named with its reason."""
    alive = cluster["a-0"].bootstrap
    for words in (("topic", "list"), ("group", "list"), ("chain", "list"), ("quorum", "list"),
                  ("consume", "half", "--exit")):
        done = run_quipu(*words, "--bootstrap", f"127.0.0.1:1,{alive}")
        assert done.code == 0, (words, done)
        done = run_quipu(*words, variables={"QUIPU_BOOTSTRAP": f"127.0.0.1:1, {alive}"})
        assert done.code == 0, (words, done)
    nobody = run_quipu("topic", "list", "--bootstrap", "127.0.0.1:1,127.0.0.1:2")
    assert nobody.code == 1
    assert "127.0.0.1:1 (" in nobody.err
    assert "127.0.0.1:2 (" in nobody.err

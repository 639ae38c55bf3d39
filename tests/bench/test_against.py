"""`quipu bench ... --against`: two brokers in turns, and the ratio of their medians."""

import json
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from quipu.bench import against
from quipu.bench.against import CONSUME, LATENCY, PRODUCE, median_round, ratios
from quipu.bench.measured import Latency, Measured
from tests.bench.fake_broker import FakeBroker, fake_broker
from tests.bench.test_commands import quipu_bench
from tests.harness.node import RunningNode


def measured(megabytes: int, p99_us: float = 1.0, cpu: float | None = None) -> Measured:
    latency = Latency(count=1, mean_us=1, p50_us=1, p99_us=p99_us, p999_us=1, max_us=1, curve_us=())
    return Measured(seconds=1, requests=1, records=1, size=megabytes * 10**6, latency=latency,
                    server_cpu_seconds=cpu)


def test_medians_are_compared() -> None:
    """K9, T5: ours divided by theirs, of rates and of CPU; the lower one of two in the middle."""
    ours = [measured(400, cpu=0.4), measured(90), measured(500), measured(300)]
    theirs = [measured(100), measured(150, cpu=0.3), measured(900)]
    assert median_round(PRODUCE, ours).size == 300 * 10**6
    found = ratios(PRODUCE, {"ours": ours[:3], "theirs": theirs})
    assert [(each.about, each.value) for each in found] == [
        ("throughput, ours / theirs", 400 / 150),
        ("broker CPU per GB, ours / theirs", pytest.approx(0.5))]
    assert [each.value for each in ratios(LATENCY, {
        "ours": [measured(1, 50.0)], "fixed": [measured(1, 25.0)], "theirs": [measured(1, 100.0)],
    })] == [0.5, 0.25]


@pytest.mark.parametrize("work", [PRODUCE, CONSUME, LATENCY], ids=lambda work: str(work.name))
def test_two_brokers_take_turns(broker: FakeBroker, work: against.Work) -> None:
    """K9, T5: every benchmark, on any two brokers; both medians, every round, and the ratio; no
    topic is left on either.
    """
    more = ["--preload", "100000"] if work is CONSUME else []
    more += ["--rate", "200"] if work is LATENCY else ["--batch", "4000"]
    with fake_broker() as other:
        done = quipu_bench(work.name, "--bootstrap", str(broker.address), "--against",
                           str(other.address), "--seconds", "0.2", "--rounds", "3", *more, "--json")
        assert done.returncode == 0, done.stderr
        assert broker.topics == other.topics == {}
    found = json.loads(done.stdout)
    assert {name: len(each) for name, each in found["rounds"].items()} == {
        "ours": 3, "theirs": 3}
    assert list(found["broker"]) == ["ours, median", "theirs, median"]
    first, second = (found["broker"][name] for name in found["broker"])
    value = found["ratios"][0]["value"]
    if work is LATENCY:
        assert value == pytest.approx(first["latency"]["p99_us"] / second["latency"]["p99_us"])
    else:
        assert value == pytest.approx(
            first["megabytes_per_second"] / second["megabytes_per_second"])


def test_a_temporary_node_against_a_broker(tmp_path: Path) -> None:
    """K9, T5: without --bootstrap ours is a temporary node; the table has both, and the ratio."""
    with RunningNode(tmp_path / "data") as node:
        done = quipu_bench("produce", "--against", node.bootstrap, "--seconds", "0.2",
                           "--rounds", "1", "--partitions", "2")
        assert done.returncode == 0, done.stderr
        left = AdminClient({"bootstrap.servers": node.bootstrap}).list_topics(timeout=30).topics
        assert not [name for name in left if name.startswith("quipu-bench")]
    assert "ours, median" in done.stdout
    assert "throughput, ours / theirs" in done.stdout


def test_what_cannot_be_compared_is_refused(broker: FakeBroker) -> None:
    """K8: one clear line."""
    at = str(broker.address)
    for words, message in (
            (["produce", "--bootstrap", at, "--against", at], "are the same broker"),
            (["produce", "--bootstrap", at, "--against", "127.0.0.1:1"], "no broker at"),
            (["produce", "--bootstrap", at, "--against", "nowhere"], "is not HOST:PORT"),
            (["produce", "--against", at, "--plot", "a.png"], "--plot draws one broker"),
            (["consume", "--against", at, "--tiered"], "leave --against out")):
        done = quipu_bench(*words, "--seconds", "0.2")
        assert (done.returncode, message in done.stderr) == (1, True), done.stderr

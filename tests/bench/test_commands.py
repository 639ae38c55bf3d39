"""`quipu bench` as a person types it, against a fake broker."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from quipu.bench import plot, table
from quipu.bench.errors import BenchError
from quipu.bench.machine import machine, python_build
from quipu.bench.measured import Latency, Measured
from quipu.bench.report import Ratio, Report
from quipu.bench.table import Series
from quipu.bench.target import Target
from tests.bench.fake_broker import FakeBroker


def quipu_bench(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "quipu", "bench", *words],
                          capture_output=True, text=True, timeout=60, check=False)


def numbers(*words: str) -> dict[str, dict[str, dict[str, float]]]:
    done = quipu_bench(*words, "--json", "--seconds", "0.3")
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, dict[str, float]]] = json.loads(done.stdout)
    return found


def test_produce_tells_throughput_latency_cpu_and_limits(broker: FakeBroker) -> None:
    """K9: all of it in one JSON object; the topic is gone afterwards."""
    found = numbers("produce", "--bootstrap", str(broker.address), "--batch", "4000",
                    "--connections", "2", "--partitions", "3", "--acks", "all")

    measured = found["broker"]["broker"]
    assert measured["messages_per_second"] > 0
    assert measured["megabytes_per_second"] > 0
    assert measured["server_cpu_seconds_per_gigabyte"] > 0
    assert measured["server_cpu_seconds_per_1000_requests"] > 0
    assert {"p50_us", "p99_us", "p99.9_us"} <= set(measured["latency"])
    assert set(found["limits"]) == {
        "receive + append", "the same, a write per batch", "receive + answer",
        "page-cache append", "CRC-32C"}
    assert [each["number"] for each in found["ratios"]] == ["P1", "P2", "P3"]
    assert all(each["value"] > 0 for each in found["ratios"])
    assert broker.topics == {}


def test_consume_reads_what_it_produced_before(broker: FakeBroker) -> None:
    """K9: with the limit of sendfile beside it."""
    found = numbers("consume", "--bootstrap", str(broker.address), "--batch", "4000",
                    "--preload", "100000", "--fetch", "20000")

    assert found["broker"]["broker"]["messages_per_second"] > 0
    assert set(found["limits"]) == {"sendfile", "send from memory"}
    assert broker.topics == {}


def test_latency_tells_produce_and_end_to_end(broker: FakeBroker) -> None:
    """K9: at the rate asked for, with the latency of an echo beside it."""
    found = numbers("latency", "--bootstrap", str(broker.address), "--rate", "200")

    assert found["broker"]["produce"]["latency"]["count"] == 60
    assert found["broker"]["end to end"]["latency"]["count"] == 60
    assert found["limits"]["receive + answer"]["latency"]["p99_us"] > 0


def test_tables_are_for_people_and_pictures_too(broker: FakeBroker, tmp_path: Path) -> None:
    """K9: without --json a table; --plot draws a picture of the same numbers."""
    picture = tmp_path / "run.png"
    done = quipu_bench("produce", "--bootstrap", str(broker.address), "--seconds", "0.2",
                       "--batch", "4000", "--plot", str(picture))

    assert done.returncode == 0, done.stderr
    assert "limit: receive + append" in done.stdout
    assert "P1  throughput / receive + append" in done.stdout
    assert "PGO" in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


BAD = [
    (["produce", "--acks", "3"], "--acks '3' is none of 0, 1, all"),
    (["produce", "--compression", "zip"], "--compression 'zip' is none of none, gzip"),
    (["consume", "--tiered", "--partitions", "2"],
     "--tiered reads one partition with the raw client"),
    (["consume", "--client", "java"], "--client 'java' is none of raw, librdkafka"),
    (["latency", "--acks", "0"], "--acks 0 has no responses"),
    (["produce", "--config", "x"], "--config 'x' is not KEY=VALUE"),
    (["produce", "--bootstrap", "nowhere"], "'nowhere' is not HOST:PORT"),
    (["produce", "--bootstrap", "127.0.0.1:1"], "no broker at 127.0.0.1:1: Connection refused"),
    (["produce", "--plot", "a.txt"], "--plot a.txt: the name must end in one of .png"),
    (["produce", "--plot", "missing/a.png"], "there is no directory"),
]


@pytest.mark.parametrize(("words", "message"), BAD, ids=[" ".join(case[0]) for case in BAD])
def test_a_bad_option_gets_one_clear_message(words: list[str], message: str) -> None:
    """K8: what is wrong and what to do, on one line, without a trace."""
    done = quipu_bench(*words)

    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_picture_without_matplotlib_is_refused_before_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """K8: it is an extra; the message says how to get it."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(BenchError, match=r"pip install 'quipu\[plot\]'"):
        plot.check_plot(Path("a.png"))


def measured(**changes: float) -> Measured:
    values = {"seconds": 2.0, "requests": 10, "records": 100, "size": 4_000_000,
              "server_cpu_seconds": 0.5, **changes}
    return Measured(latency=Latency.of([0.001, 0.002]), **values)  # type: ignore[arg-type]


def test_numbers_follow_from_what_was_counted() -> None:
    """K9: per second, per GB and per 1000 requests."""
    found = measured()

    assert (found.requests_per_second, found.records_per_second) == (5, 50)
    assert (found.megabytes_per_second, found.cpu_seconds_per_gigabyte) == (2, 125)
    assert found.cpu_seconds_per_1000_requests == 50


def test_the_best_round_speaks_for_a_series() -> None:
    """K9: a neighbour can only make a round worse."""
    series = Series([measured(), measured(seconds=1.0), measured(server_cpu_seconds=0.1)])

    assert (series.megabytes, series.requests) == (4, 10)
    assert series.cpu_per_gigabyte == pytest.approx(25)
    assert series.best.seconds == 1.0


RATIOS = [
    (Ratio(number="", about="", value=0.9, aim=0.8), True),
    (Ratio(number="", about="", value=0.7, aim=0.8), False),
    (Ratio(number="", about="", value=1.4, aim=1.5, better="lower"), True),
    (Ratio(number="", about="", value=1.6, aim=1.5, better="lower"), False),
    (Ratio(number="", about="", value=None, aim=1.5), None),
    (Ratio(number="", about="", value=1.0), None),
]


@pytest.mark.parametrize(("ratio", "met"), RATIOS)
def test_an_aim_is_met_or_not_or_not_known(ratio: Ratio, met: bool | None) -> None:
    """K9: a ratio without a value or an aim claims nothing."""
    assert ratio.is_met is met


def test_a_report_says_how_python_was_built() -> None:
    """K9: a build without profile-guided optimisation is a tenth slower, so it is told."""
    report = Report(title="t", load={}, broker={"broker": measured()})

    assert report.as_json()["machine"] == machine()
    assert "PGO" in python_build()
    assert machine()["helper"] in {"compiled", "plain Python"}


def test_the_table_measures_any_broker(broker: FakeBroker, tmp_path: Path,
                                       monkeypatch: pytest.MonkeyPatch) -> None:
    """K9: one line of `make bench`, with rounds in turns, against a broker at an address."""
    monkeypatch.setattr(table, "SIZE_MAX", 1 << 20)
    target = Target(broker.address, None, None, is_temporary=False)
    line = table.p1(target, str(tmp_path), batch_size=10_000, pipeline=2)

    assert len(line.broker.rounds) == len(line.limit.rounds) == table.ROUNDS
    assert line.ratios[0].value is not None
    assert broker.topics == {}

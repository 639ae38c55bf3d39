"""The same requests to a real Kafka and to Quipu: a short run of the differential test."""

import re
import subprocess
from pathlib import Path

import pytest

from quipu.wire.messages.k18_api_versions import ApiVersionsRequest
from tests.differential.brokers import both_brokers
from tests.differential.coverage import coverage_lines, found_lines, summary_lines
from tests.differential.kafka_apis import KAFKA_APIS
from tests.differential.run import Run, missing_coverage
from tests.harness.node import RunningNode
from tests.harness.raw import RawConnection

pytestmark = pytest.mark.interop

REQUESTS = 5_000
SEED = 1


@pytest.mark.timeout(600)
def test_kafka_and_quipu_answer_alike(kafka_jars: Path, tmp_path: Path) -> None:
    """K1, K5: every API and version that both serve; what differs is on the page, with a reason."""
    with both_brokers(kafka_jars, tmp_path) as addresses:
        run = Run(*addresses, SEED)
        run.begin()
        run.go(REQUESTS)
        run.exchange.close()
        with RawConnection(*addresses[0]) as kafka:
            announced = kafka.ask(ApiVersionsRequest(
                client_software_name="a", client_software_version="1"), 3)
    print("\n".join(coverage_lines(run)))

    assert {each.api_key: (each.min_version, each.max_version)
            for each in announced.api_keys} == {  # type: ignore[attr-defined]
        key: versions for key, (_, versions) in KAFKA_APIS.items()}
    assert list(missing_coverage(run)) == []
    assert not run.unexplained, "\n".join((*found_lines(run), *summary_lines(run)))


@pytest.mark.timeout(120)
def test_javas_transactional_producer_stops_with_words(kafka_jars: Path, tmp_path: Path) -> None:
    """K5: it says that transactions are not served, rather than that a right is missing."""
    with RunningNode(tmp_path / "data") as node:
        done = subprocess.run(
            ["java", "-Xmx128m", "-cp", f"{kafka_jars}/*",
             "org.apache.kafka.tools.ProducerPerformance", "--topic", "t", "--num-records", "1",
             "--record-size", "10", "--throughput", "-1", "--transactional-id", "mine",
             "--transaction-duration-ms", "1000", "--bootstrap-server", node.bootstrap],
            capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, timeout=100)
    said = done.stdout + done.stderr

    assert done.returncode != 0, said
    assert re.search(r"does not serve transactions", said), said

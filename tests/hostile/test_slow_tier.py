"""Old records are wanted from a tier that hangs: nobody else notices."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from quipu.model.errors import Code
from quipu.wire.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from tests.harness.node import RunningNode
from tests.harness.progress import wait_for
from tests.harness.raw import RawConnection
from tests.harness.s3_server import S3Server
from tests.harness.store_proxy import StoreProxy, WireFault
from tests.hostile.bystander import TOPIC, undisturbed

READERS = 8
RECORDS = 400
WAIT_MS = 300
SETTINGS = {
    "remote.log.storage.system.enable": "true", "remote.log.manager.task.interval.ms": "50",
    "log.retention.check.interval.ms": "100", "remote.fetch.max.wait.ms": str(WAIT_MS)}
TIERED = {"remote.storage.enable": "true", "segment.bytes": "65536",
          "local.retention.bytes": "65536"}
MEMORY_MAX = 400 << 20


def fetch(offset: int, max_wait: int = 20_000) -> FetchRequest:
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 16)
    return FetchRequest(max_wait=max_wait, min_bytes=1, max_bytes=1 << 20, session_epoch=-1,
                        topics=[FetchTopic(topic="old", partitions=[part])])


def ask(node: RunningNode, offset: int) -> tuple[int, int, float]:
    """The error code, the size and the seconds of one Fetch."""
    began = time.monotonic()
    with RawConnection(node.host, node.port) as raw:
        answer = raw.ask(fetch(offset), 10)
    assert isinstance(answer, FetchResponse)
    (part,) = answer.responses[0].partitions
    return part.error_code, len(part.records or b""), time.monotonic() - began


@pytest.fixture
def tiered(tmp_path: Path, s3_server: S3Server) -> Iterator[tuple[RunningNode, StoreProxy]]:
    """A node with a topic whose records are mostly in the tier, behind a wire."""
    with StoreProxy(s3_server.port) as proxy:
        url = s3_server.url(s3_server.bucket(), port=proxy.port).replace("=20000", "=2000")
        with RunningNode(tmp_path / "data", settings={
                **SETTINGS, "remote.log.storage.url": url}) as node:
            admin = AdminClient({"bootstrap.servers": node.bootstrap})
            for name, config in ((TOPIC, {}), ("old", TIERED)):
                admin.create_topics([NewTopic(name, 1, config=config)])[name].result(30)
            producer = Producer({"bootstrap.servers": node.bootstrap, "batch.size": 8000})
            for _ in range(RECORDS):
                producer.produce("old", value=bytes(2000))
            assert producer.flush(30) == 0
            (folder,) = node.directory.glob("old-0.*")
            wait_for(lambda: len(list(folder.glob("*.log"))) <= 2)
            yield node, proxy


def test_a_tier_that_hangs_holds_up_nobody_else(tiered: tuple[RunningNode, StoreProxy]) -> None:
    """R15: readers of old records get nothing or an error, in time; a producer is served as
    if they were not there.
    """
    node, proxy = tiered
    proxy.break_next(WireFault.STALL, b"GET")
    answers: list[tuple[int, int, float]] = []

    def attack() -> None:
        threads = [threading.Thread(target=lambda at=at: answers.append(ask(node, at)))
                   for at in range(0, RECORDS // 2, RECORDS // 2 // READERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    print(undisturbed(node, attack, anonymous_max=MEMORY_MAX))
    assert {code for code, *_ in answers} <= {Code.NONE, Code.KAFKA_STORAGE_ERROR}
    assert not any(size for _, size, _ in answers)
    assert sorted(seconds for *_, seconds in answers)[len(answers) // 2] < 2 * WAIT_MS / 1000
    proxy.heal()
    wait_for(lambda: ask(node, 0)[1] > 0)

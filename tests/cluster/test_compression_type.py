"""compression.type with stock clients: what they produce is stored as the topic wants it."""

import json
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.harness.command import run_quipu
from tests.harness.node import RunningNode

SENT = ("none", "gzip", "snappy", "lz4", "zstd")
COUNT = 50
SECONDS_MAX = 60.0


def sent(bootstrap: str, topic: str) -> list[tuple[bytes, bytes]]:
    """Records of an idempotent producer for each codec, in their order."""
    records = []
    for codec in SENT:
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec,
                             "enable.idempotence": True, "linger.ms": 50})
        for number in range(COUNT):
            record = f"{codec}-{number}".encode(), f"{codec} ".encode() * 30
            producer.produce(topic, key=record[0], value=record[1])
            records.append(record)
        assert producer.flush(SECONDS_MAX) == 0
    return records


def read(bootstrap: str, topic: str, count: int) -> list[tuple[bytes, bytes]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"of-{topic}",
                         "auto.offset.reset": "earliest", "check.crcs": True})
    consumer.subscribe([topic])
    found: list[tuple[bytes, bytes]] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), timeout=SECONDS_MAX)
        assert messages, f"{len(found)} of {count}"
        for message in messages:
            assert message.error() is None
            found.append((message.key(), message.value()))  # type: ignore[arg-type]
    consumer.close()
    return found


@pytest.mark.timeout(180)
@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_stock_clients_read_back_what_was_compressed_again(tmp_path: Path, wanted: str) -> None:
    """K1, K2, K5: in order and unchanged; `quipu log show` names the topic's codec alone."""
    with RunningNode(tmp_path / "data") as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1, config={
            "compression.type": wanted, "compression.gzip.level": "9",
            "compression.lz4.level": "17", "compression.zstd.level": "-5"})])["t"].result(30)
        records = sent(node.bootstrap, "t")
        assert read(node.bootstrap, "t", len(records)) == records
        node.stop()
    (directory,) = (tmp_path / "data").glob("t-0.*")
    shown = run_quipu("log", "show", str(directory), "--json")
    batches = [json.loads(line) for line in shown.out.splitlines()]
    codecs = {each["compression"] for each in batches if each.get("type_name") == "data"}
    assert codecs == {"none" if wanted == "uncompressed" else wanted}

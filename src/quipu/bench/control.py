"""Requests before the load: creates the topic of a run and finds the leaders of its partitions.

They are sent with `quipu.client`, to any Kafka broker from version 2.8 on.

Not here: the load itself (frames.py, closed_loop.py, open_loop.py, tail.py).
"""

import time
from collections.abc import Mapping
from typing import Final

from quipu.bench.errors import BenchError
from quipu.bench.frames import CLIENT_ID, FETCH_VERSION, PRODUCE_TIMEOUT_MS, PRODUCE_VERSIONS
from quipu.client.admin.topics import create_topic, describe_topics
from quipu.client.cluster import Cluster
from quipu.client.connection import BrokerConnection
from quipu.client.errors import BrokerRefused, ConnectionFailed, code_name
from quipu.client.settings import client_settings
from quipu.model.errors import Code
from quipu.model.settings_types import Address
from quipu.wire.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from quipu.wire.messages.k01_fetch import FetchRequest

LEADER_WAIT_TRIES: Final = 100
LEADER_WAIT_SECONDS: Final = 0.05


def parse_address(text: str) -> Address:
    """The address HOST:PORT; raises `BenchError` for any other text."""
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise BenchError(f"{text!r} is not HOST:PORT, for example localhost:9092")
    return Address(host.strip("[]"), int(port))


def responding(bootstrap: str) -> Address:
    """The first address of a list that a broker responds at; raises `BenchError` if none does."""
    problems = []
    for address in [parse_address(word.strip()) for word in bootstrap.split(",")]:
        try:
            connect(address).close()
        except BenchError as error:
            problems.append(str(error))
        else:
            return address
    raise BenchError("\n".join(problems))


def connect(address: Address) -> Cluster:
    """A client of the broker at an address; raises `BenchError` if it does not respond."""
    cluster = Cluster(client_settings({
        "bootstrap.servers": str(address), "client.id": CLIENT_ID,
        "default.api.timeout.ms": "30000"}))
    try:
        cluster.connection_at(address)
    except ConnectionFailed as error:
        raise BenchError(
            f"no broker at {address}: {error.why}; start one with `quipu start`, or leave "
            "--bootstrap out to measure a temporary node") from error
    return cluster


def produce_version(cluster: Cluster) -> int:
    """The version of Produce to use; raises if the broker lacks it or Fetch `FETCH_VERSION`."""
    connection = cluster.any_connection()
    produce = connection.version(ProduceRequest, highest=PRODUCE_VERSIONS[-1])
    fetch = connection.version(FetchRequest, highest=FETCH_VERSION)
    if produce not in PRODUCE_VERSIONS or fetch != FETCH_VERSION:
        raise BenchError(
            f"the broker at {connection.address} serves Produce up to v{produce} and Fetch up to "
            f"v{fetch}; v{PRODUCE_VERSIONS[0]} and v{FETCH_VERSION} are needed: Kafka 2.8 or later"
        )
    return produce


def create_led_topic(
    cluster: Cluster, topic: str, partitions: int, settings: Mapping[str, str]
) -> list[Address]:
    """Create a topic with the default number of replicas; returns the leader of each partition."""
    create_topic(cluster, topic, partitions=partitions, settings=settings)
    return leaders(cluster, topic, partitions)


def leaders(cluster: Cluster, topic: str, partitions: int) -> list[Address]:
    """The address of the leader of each partition, by partition; waits until all have one."""
    for _ in range(LEADER_WAIT_TRIES):
        found = _leaders_now(cluster, topic)
        if len(found) == partitions:
            return found
        time.sleep(LEADER_WAIT_SECONDS)
    raise BenchError(f"topic {topic} has no leaders; does it exist?")


def _leaders_now(cluster: Cluster, topic: str) -> list[Address]:
    try:
        described = describe_topics(cluster, [topic]).get(topic)
    except BrokerRefused:  # the topic was created a moment ago
        return []
    brokers = cluster.brokers()
    partitions = () if described is None else described.partitions
    return [brokers[each.leader] for each in partitions if each.leader in brokers]


def send_batch(
    connection: BrokerConnection, topic: str, partition: int, batch: bytes | bytearray
) -> None:
    """Produce one batch, and wait for the response; raises `BenchError` if it is refused."""
    data = PartitionProduceData(index=partition, records=memoryview(batch))
    request = ProduceRequest(
        acks=1, timeout=PRODUCE_TIMEOUT_MS,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    (found,) = connection.ask(request, ProduceResponse, highest=PRODUCE_VERSIONS[-1]).responses
    (response,) = found.partition_responses
    if response.error_code != Code.NONE:
        raise BenchError(f"{topic}-{partition} refused rows: {code_name(response.error_code)}")

"""Brokers that answer with anything at all: an error, never a wrong record, a hang or a crash."""

import contextlib
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.client.fetch import fetch
from quipu.client.ranges import Range
from quipu.model.errors import QuipuError
from quipu.wire.messages.k01_fetch import FetchResponse
from quipu.wire.messages.k02_list_offsets import ListOffsetsResponse
from quipu.wire.messages.k03_metadata import MetadataResponse
from quipu.wire.schema import Message
from tests.client.fake_kafka import FakeKafka
from tests.client.test_cluster import cluster_at
from tests.client.test_fetch import LOG, batch
from tests.wire.message_maker import make

KINDS: dict[int, type[Message]] = {1: FetchResponse, 2: ListOffsetsResponse, 3: MetadataResponse}


def read_all(fake: FakeKafka) -> int:
    """The number of batches that a client is given of a topic with five records."""
    with cluster_at(fake.bootstrap, default_api_timeout_ms="30", request_timeout_ms="200",
                    socket_connection_setup_timeout_ms="200", retry_backoff_ms="1") as cluster:
        ends = cluster.latest(cluster.partitions(["t"]))
        return len(list(fetch(cluster, [Range(*each, 0, end) for each, end in ends.items()])))


@pytest.mark.parametrize("key", KINDS)
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_answers_of_any_content(key: int, seed: int) -> None:
    """I18: well-formed messages with values at every edge, and bytes that are no message."""
    rng = random.Random(seed)

    def answer(_request: Any, version: int) -> Any:
        if rng.random() < 0.3:
            return rng.randbytes(rng.randrange(200))
        kind = KINDS[key]
        return make(kind, version, rng, flexible=kind.is_flexible(version))

    with FakeKafka() as fake:
        fake.serve_log("t", LOG, end=5)
        fake.answers[key] = answer
        with contextlib.suppress(QuipuError):
            assert read_all(fake) <= 5


@settings(max_examples=25)
@given(st.integers(0, len(LOG[0]) - 1), st.integers(1, 255))
def test_batches_with_a_wrong_byte(position: int, flip: int) -> None:
    """I18: the walk over batches ends, whatever their headers say."""
    damaged = bytearray(batch(b"a", b"b", base=0) + LOG[1])
    damaged[position] ^= flip
    with FakeKafka() as fake:
        fake.serve_log("t", [bytes(damaged)], end=3)
        with contextlib.suppress(QuipuError):
            assert read_all(fake) <= 3

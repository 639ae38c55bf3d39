"""Frames of a possible length with impossible content: random, mutated, absurd."""

import contextlib
import os
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.wire.frame import encode_request
from quipu.wire.messages import REQUESTS
from quipu.wire.messages.k03_metadata import MetadataRequest
from quipu.wire.messages.k19_create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tests.harness.node import RunningNode
from tests.harness.raw import RawConnection
from tests.hostile.bystander import Bystander

pytestmark = pytest.mark.xdist_group("hostile")  # one node for all
EXAMPLES = int(os.environ.get("HOSTILE_EXAMPLES", "400"))
FRAMES_PER_EXAMPLE = 8
HUGE_COUNTS = [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xfe", b"\xff\xff\xff\xff\x0f"]

VALID = [
    encode_request(request(), version, correlation_id=1, client_id="hostile")[4:]
    for key, request in sorted(REQUESTS.items())
    for version in request.VERSIONS
]
MUTATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("flip"), st.integers(0, 400), st.integers(1, 255)),
        st.tuples(st.just("cut"), st.integers(0, 400), st.just(0)),
        st.tuples(st.just("insert"), st.integers(8, 400), st.integers(0, 255)),
        st.tuples(st.just("count"), st.integers(8, 60), st.integers(0, len(HUGE_COUNTS) - 1)),
    ),
    min_size=1, max_size=4,
)


def framed(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def mutate(frame: bytes, mutations: list[tuple[str, int, int]]) -> bytes:
    """Change a frame step by step; the API key and version stay, so that a decoder sees it."""
    changed = bytearray(frame)
    for kind, position, value in mutations:
        place = 4 + position % max(1, len(changed) - 4)
        if kind == "flip" and place < len(changed):
            changed[place] ^= value
        elif kind == "cut":
            del changed[max(place, 10):]
        elif kind == "insert":
            changed[place:place] = bytes([value]) * 4
        elif kind == "count":
            changed[place : place + 4] = HUGE_COUNTS[value]
    return bytes(changed)


def throw(node: RunningNode, frames: list[bytes]) -> None:
    """Send frames, each on a connection of its own: the first bad one closes it."""
    for frame in frames:
        with RawConnection(node.host, node.port) as connection, contextlib.suppress(OSError):
            connection.send(framed(frame))
            connection.socket.settimeout(0.002)
            connection.socket.recv(1)


@settings(max_examples=EXAMPLES)
@given(frames=st.lists(st.binary(max_size=300), min_size=1, max_size=FRAMES_PER_EXAMPLE))
def _random_frames(node: RunningNode, frames: list[bytes]) -> None:
    throw(node, frames)


def test_random_frames_harm_no_one(unharmed: RunningNode) -> None:
    """K8: frames of random bytes get an error or an end, and others are served meanwhile."""
    with Bystander(unharmed) as bystander:
        _random_frames(unharmed)
    print(bystander.verdict())


@settings(max_examples=EXAMPLES)
@given(chosen=st.lists(st.tuples(st.sampled_from(VALID), MUTATIONS), min_size=1,
                       max_size=FRAMES_PER_EXAMPLE))
def _mutated_frames(
    node: RunningNode, chosen: list[tuple[bytes, list[tuple[str, int, int]]]]
) -> None:
    throw(node, [mutate(frame, mutations) for frame, mutations in chosen])


def test_mutated_requests_harm_no_one(unharmed: RunningNode) -> None:
    """K8: requests of every kind and version with flipped, cut, inserted and inflated fields."""
    with Bystander(unharmed) as bystander:
        _mutated_frames(unharmed)
    print(bystander.verdict())


@pytest.mark.parametrize("frame", [
    b"", b"\x00", struct.pack(">hhi", 999, 0, 1), struct.pack(">hhih", 999, 0, 1, -1),
    struct.pack(">hhih", -1, -1, -1, -1), struct.pack(">hhih", 3, 999, 1, -1),
    struct.pack(">hhih", 3, 1, 1, 32767), struct.pack(">hhih", 0, 2, 1, -1) + b"\x00\x01",
], ids=["empty", "one byte", "no client id", "unknown key", "negative key", "unknown version",
        "client id too long", "old produce"])
def test_a_request_that_cannot_be_served_gets_an_error_or_an_end(
    unharmed: RunningNode, frame: bytes
) -> None:
    """K8: none of these is left hanging."""
    with RawConnection(unharmed.host, unharmed.port) as connection:
        connection.send(framed(frame))
        try:
            assert connection.receive_frame()
        except ConnectionError:
            assert connection.is_closed_by_peer()


def test_a_count_beyond_the_frame_is_refused_before_it_costs(unharmed: RunningNode) -> None:
    """K8: a metadata request that claims two billion topics in twenty bytes."""
    head = struct.pack(">hhih", MetadataRequest.KEY, 1, 1, -1)
    with RawConnection(unharmed.host, unharmed.port) as connection:
        connection.send(framed(head + struct.pack(">i", 2**31 - 1)))
        assert connection.is_closed_by_peer()


@pytest.mark.parametrize("partitions", [2**31 - 1, 10_000_000])
def test_an_absurd_topic_is_refused(unharmed: RunningNode, partitions: int) -> None:
    """K5, K8: a well-formed request may still ask for too much; it gets an error that says so."""
    topic = CreatableTopic(name="absurd", num_partitions=partitions, replication_factor=1)
    with Bystander(unharmed) as bystander, RawConnection(unharmed.host, unharmed.port) as asking:
        response = asking.ask(CreateTopicsRequest(topics=[topic], timeout=1000), 5)
    bystander.verdict()
    assert isinstance(response, CreateTopicsResponse)
    assert response.topics[0].error_code != 0
    assert response.topics[0].error_message

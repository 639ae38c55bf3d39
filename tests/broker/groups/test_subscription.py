"""A consumer's metadata: topics where it says so, and nothing worse than None otherwise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quipu.broker.groups.subscription import find_topics
from quipu.wire.messages.consumer_protocol import ConsumerProtocolSubscription, encode_payload


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_topics_are_found_in_every_version(version: int) -> None:
    """K3: whatever else a version adds comes after them."""
    payload = ConsumerProtocolSubscription(topics=["a", "b"], user_data=b"x")

    assert find_topics(encode_payload(payload, version)) == {"a", "b"}


@given(data=st.binary(max_size=30))
def test_any_bytes_may_be_metadata(data: bytes) -> None:
    """K8: protocols of other kinds put there what they like."""
    topics = find_topics(data)

    assert topics is None or all(isinstance(topic, str) for topic in topics)

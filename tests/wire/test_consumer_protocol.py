"""What consumers put into the opaque bytes of a group's messages."""

import pytest
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription as TheirSubscription

from quipu.model.errors import MalformedBytes
from quipu.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_payload,
    encode_payload,
)

SUBSCRIPTION = ConsumerProtocolSubscription(topics=["a", "b"], user_data=b"\0\1")


@pytest.mark.parametrize("version", ConsumerProtocolSubscription.VERSIONS)
def test_a_payload_carries_its_version(version: int) -> None:
    """K3: as kafka-python writes it."""
    data = encode_payload(SUBSCRIPTION, version)

    assert data == TheirSubscription(
        version=version, topics=["a", "b"], user_data=b"\0\1").encode()
    assert decode_payload(ConsumerProtocolSubscription, data) == SUBSCRIPTION


def test_a_payload_of_an_unknown_version_is_read_as_far_as_it_is_known() -> None:
    """K3: fields are only ever added at the end."""
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[TopicPartition(topic="a", partitions=[0, 2])])
    newer = (9).to_bytes(2, "big") + assignment.encode(3) + b"something new"

    assert decode_payload(ConsumerProtocolAssignment, memoryview(newer)) == assignment


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff\0\0\0\0", b"\0\0\0\0"])
def test_a_payload_that_makes_no_sense_is_malformed(data: bytes) -> None:
    """K8: members may put anything there; tools must not fall over it."""
    with pytest.raises(MalformedBytes):
        decode_payload(ConsumerProtocolAssignment, data)

"""Reads the topics from a consumer's subscription, which it sends as metadata when it joins.

A member's metadata is opaque to the coordinator, except for the topics, as in Kafka: offsets of a
topic that the group still reads must be neither deleted nor expired.  A group also works without
them, so metadata that cannot be decoded is no error.
"""

from quipu.model.errors import MalformedBytes
from quipu.wire.messages.consumer_protocol import ConsumerProtocolSubscription, decode_payload


def find_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a consumer's subscription; None if `metadata` is not one."""
    try:
        return frozenset(decode_payload(ConsumerProtocolSubscription, metadata).topics)
    except MalformedBytes:
        return None

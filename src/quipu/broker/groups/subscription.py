"""What a consumer subscribes to, read out of the metadata that it joins with.

To the coordinator a member's metadata is opaque; this is the one thing it may look up in it, as
Kafka's does: offsets of a topic that the group still reads must be neither deleted nor expired.
A group works without the answer, so bytes that make no sense are nobody's fault.
"""

from quipu.model.errors import MalformedBytes
from quipu.wire.messages.consumer_protocol import ConsumerProtocolSubscription, decode_payload


def find_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a consumer's subscription; None if `metadata` is not one."""
    try:
        return frozenset(decode_payload(ConsumerProtocolSubscription, metadata).topics)
    except MalformedBytes:
        return None

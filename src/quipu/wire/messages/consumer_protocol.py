"""What consumers of a group send each other in the opaque bytes of JoinGroup and SyncGroup.

    version i16 | body

Behaviour
    * a member sends its subscription to the leader of its group, which sends an assignment back
    * the broker forwards both without decoding; tools decode them to show who reads what
    * fields are only ever added: an unknown version is decoded as the highest known one, and
      the bytes left over are ignored
Versions, of both
    v1  a subscription names the partitions that the member owns
    v2  ... and the generation in which it got them
    v3  ... and the member's rack
"""

from typing import TypeVar

from quipu.model.errors import MalformedBytes
from quipu.wire.fields import INT32, STRING, array, binary, int32, string
from quipu.wire.schema import Message, Struct


class TopicPartition(Struct):
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(INT32)


class ConsumerProtocolSubscription(Message, versions="0-3"):
    """The topics that a member subscribes to."""

    topics: list[str] = array(STRING)
    user_data: bytes | None = binary(nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = array(TopicPartition, "1+")
    generation_id: int = int32("2+", default=-1)
    rack_id: str | None = string("3+", nullable="3+", default=None)


class ConsumerProtocolAssignment(Message, versions="0-3"):
    """The partitions that a member reads."""

    assigned_partitions: list[TopicPartition] = array(TopicPartition)
    user_data: bytes | None = binary(nullable="0+", default=None)


Payload = TypeVar("Payload", ConsumerProtocolSubscription, ConsumerProtocolAssignment)


def encode_payload(payload: Message, version: int) -> bytes:
    return version.to_bytes(2, "big") + payload.encode(version)


def decode_payload(kind: type[Payload], data: memoryview | bytes) -> Payload:
    """Decode a payload of any version, known or not."""
    version = int.from_bytes(data[:2], "big", signed=True)
    if len(data) < 2 or version < 0:
        raise MalformedBytes(f"{kind.__name__}: {len(data)} bytes that do not begin with a version")
    if version in kind.VERSIONS:
        return kind.decode(data[2:], version)
    return kind.decode_prefix(data[2:], kind.VERSIONS[-1])[0]

"""The messages from nodes to the controller, and their responses: Quipu's own.

    request    type u16 · version u16 · body    (big endian; bodies are flexible messages)
    response   index i64 · body                 the change is in the metadata up to `index`

A message that Kafka also has between a broker and its controller has Kafka's name.  Optional
additions are tagged fields, so that nodes of two versions understand each other.

Invariants
    broker.cluster.W1  a type or a version is never given another meaning; a new one gets the next
                       number
"""

import struct
from typing import Final, NamedTuple
from uuid import UUID

from quipu.model.errors import Code, MalformedBytes, RequestError
from quipu.model.ids import RaftIndex
from quipu.wire.fields import (
    INT32,
    array,
    binary,
    boolean,
    int8,
    int16,
    int32,
    int64,
    string,
    uuid,
)
from quipu.wire.schema import Message, Struct

_HEAD: Final = struct.Struct(">HH")
_INDEX: Final = struct.Struct(">q")


class BrokerListener(Struct):
    """The address of one listener of a node, for clients."""

    name: str = string()
    host: str = string()
    port: int = int32()


class BrokerRegistrationRequest(Message, key=1, versions="0", flexible="0+"):
    """Register this process of a node, and its addresses; repeated until there is a response."""

    node_id: int = int32()
    name: str = string()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)
    peer_host: str = string()
    peer_port: int = int32()
    incarnation: UUID = uuid()
    lease_ms: int = int32(tag=0)  # how long it leads after a heartbeat; 0: for the session timeout
    directory_id: UUID = uuid(tag=1)  # the id of its data directory; zeros: not sent
    listeners: list[BrokerListener] = array(BrokerListener, tag=2)  # none: PLAINTEXT at host:port
    metadata_level: int = int32(tag=3)  # which records it can read (controller.R4)


class BrokerRegistrationResponse(Message, key=1, versions="0", flexible="0+"):
    """The node is registered; its later requests carry `broker_epoch`."""

    broker_epoch: int = int64()


class CaughtUpChain(Struct):
    """A syncing member of a chain that has every record."""

    chain: str = string()
    node_id: int = int32()
    version: int = int32()


class CaughtUpPartition(Struct):
    """A node that has every record of a moving partition; -1: the new set's members serve."""

    topic_id: UUID = uuid()
    partition: int = int32()
    node_id: int = int32()
    version: int = int32()


class FailedPartition(Struct):
    """A partition whose log has failed on the node that sends this."""

    topic_id: UUID = uuid()
    partition: int = int32()


class MigratingPartition(Struct):
    """How far a sealed partition is that the sender leads (migrations.py)."""

    topic_id: UUID = uuid()
    partition: int = int32()
    version: int = int32()
    step: int = int8()  # a MigrationStep
    bytes_left: int = int64()
    trouble: str = string()


class BrokerHeartbeatRequest(Message, key=2, versions="0", flexible="0+"):
    """A node is alive; with its reports."""

    node_id: int = int32()
    broker_epoch: int = int64()
    incarnation: UUID = uuid()
    is_ready: bool = boolean()  # it can serve, and is not stopping
    caught_up_chains: list[CaughtUpChain] = array(CaughtUpChain)
    caught_up_partitions: list[CaughtUpPartition] = array(CaughtUpPartition)
    trouble: str = string("0+", tag=0)  # why other nodes should serve instead; or empty
    failed_partitions: list[FailedPartition] = array(FailedPartition, tag=1)  # all, each time
    migrating: list[MigratingPartition] = array(MigratingPartition, tag=2)  # all, each time
    metadata_level: int = int32(tag=3)  # as in its registration, which an older controller ignored


class BrokerHeartbeatResponse(Message, key=2, versions="0", flexible="0+"):
    """Sent by a node that certainly was the controller after the heartbeat was sent."""

    is_fenced: bool = boolean()
    session_ms: int = int32()  # the session timeout


class ControlledShutdownRequest(Message, key=3, versions="0", flexible="0+"):
    """A node is about to stop: let other nodes lead and serve instead."""

    node_id: int = int32()
    broker_epoch: int = int64()
    incarnation: UUID = uuid()


class ControlledShutdownResponse(Message, key=3, versions="0", flexible="0+"):
    """Other nodes lead and serve: the node may stop."""


class AllocateProducerIdsRequest(Message, key=4, versions="0", flexible="0+"):
    """Reserve a block of producer ids for a node."""

    node_id: int = int32()


class AllocateProducerIdsResponse(Message, key=4, versions="0", flexible="0+"):
    """Ids from `start` on, before `end`."""

    start: int = int64()
    end: int = int64()


class InternalTopicConfig(Struct):
    """A setting of a topic."""

    name: str = string()
    value: str | None = string(nullable="0+", default=None)


class InternalTopic(Struct):
    """One of the cluster's own topics, which a node needs."""

    name: str = string()
    partition_count: int = int32(default=-1)
    replication_factor: int = int16(default=-1)  # ignored: the topic is spread over all chains
    assignments: list[int] = array(INT32)  # always empty
    configs: list[InternalTopicConfig] = array(InternalTopicConfig)


class CreateInternalTopicsRequest(Message, key=5, versions="0", flexible="0+"):
    """Create the internal topics that do not exist yet.

    Nodes of earlier versions also create topics of clients with this message, with `is_internal`
    false; this version sends CreateTopics in an envelope for those.
    """

    topics: list[InternalTopic] = array(InternalTopic)
    is_internal: bool = boolean()
    validate_only: bool = boolean()  # ignored


class CreateInternalTopicsResponse(Message, key=5, versions="0", flexible="0+"):
    """The topics exist."""

    topics: list[int] = array(INT32)  # always empty


class EnvelopeRequest(Message, key=6, versions="0", flexible="0+"):
    """A client's Kafka request, forwarded to the controller (as in KIP-590)."""

    api_key: int = int16()
    api_version: int = int16()
    client_id: str | None = string(nullable="0+", default=None)
    client_host: str = string()
    body: bytes = binary()
    listener: str = string("0+", tag=0)  # the one that the client connected to; empty: PLAINTEXT
    security_protocol: str = string("0+", tag=1)  # of that listener
    principal_type: str = string("0+", tag=2)  # the client's principal; empty: not sent
    principal_name: str = string("0+", tag=3)
    request_id: UUID = uuid(tag=4)  # the same in every attempt to deliver it; zeros: not sent


class EnvelopeResponse(Message, key=6, versions="0", flexible="0+"):
    """The response to the client, encoded."""

    body: bytes = binary()


class ControllerApi(NamedTuple):
    """A request to the controller, and its response."""

    request: type[Message]
    response: type[Message]


CONTROLLER_APIS: Final[dict[int, ControllerApi]] = {
    api.request.KEY: api for api in (
        ControllerApi(BrokerRegistrationRequest, BrokerRegistrationResponse),
        ControllerApi(BrokerHeartbeatRequest, BrokerHeartbeatResponse),
        ControllerApi(ControlledShutdownRequest, ControlledShutdownResponse),
        ControllerApi(AllocateProducerIdsRequest, AllocateProducerIdsResponse),
        ControllerApi(CreateInternalTopicsRequest, CreateInternalTopicsResponse),
        ControllerApi(EnvelopeRequest, EnvelopeResponse),
    )
}
assert len(CONTROLLER_APIS) == 6  # broker.cluster.W1: no number twice
assert all(number == api.response.KEY for number, api in CONTROLLER_APIS.items())


def encode_request(request: Message) -> bytes:
    version = request.VERSIONS[-1]
    return _HEAD.pack(request.KEY, version) + request.encode(version)


def decode_request(data: bytes) -> tuple[Message, int]:
    """The request in `data`, and its version, in which the response is expected."""
    if len(data) < _HEAD.size:
        raise MalformedBytes(
            f"a request to the controller of {len(data)} bytes has no type and version")
    number, version = _HEAD.unpack_from(data)
    api = CONTROLLER_APIS.get(number)
    if api is None or version not in api.request.VERSIONS:
        raise RequestError(
            f"requests to the controller of type {number} version {version} are not known here: "
            "is the controller of an older version?", code=Code.UNSUPPORTED_VERSION)
    return api.request.decode(memoryview(data)[_HEAD.size :], version), version


def encode_response(index: RaftIndex, response: Message, version: int) -> bytes:
    return _INDEX.pack(index) + response.encode(version)


def decode_response(data: bytes, request: Message) -> tuple[Message, RaftIndex]:
    """The response to `request`, and up to where the metadata must be applied to see its effect."""
    if len(data) < _INDEX.size:
        raise MalformedBytes(f"a response of the controller of {len(data)} bytes has no index")
    (index,) = _INDEX.unpack_from(data)
    response = CONTROLLER_APIS[request.KEY].response
    version = request.VERSIONS[-1]
    return response.decode(memoryview(data)[_INDEX.size :], version), RaftIndex(index)

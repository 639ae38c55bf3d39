"""What nodes ask of the controller: messages of our own, as they travel between nodes.

    call     type u16 · version u16 · body       (big endian; bodies are flexible messages)
    answer   index i64 · body                    what was asked for is in the metadata up to `index`

Invariants
    W1  a type or a version is never given another meaning; a new one gets the next number
    W2  optional additions are tagged fields: an older program reads past them
"""

import struct
from typing import Final, NamedTuple
from uuid import UUID

from quipu.controller.state import ClusterState
from quipu.controller.topics import NewTopic, TopicAnswer
from quipu.model.errors import Code, MalformedBytes, RequestError
from quipu.model.ids import RaftIndex
from quipu.wire.fields import (
    INT32,
    array,
    binary,
    boolean,
    int16,
    int32,
    int64,
    string,
    uuid,
)
from quipu.wire.schema import Message, Struct

_HEAD: Final = struct.Struct(">HH")
_INDEX: Final = struct.Struct(">q")


class RegisterBroker(Message, key=1, versions="0", flexible="0+"):
    """A node is there, and where; sent again until it is answered."""

    node_id: int = int32()
    name: str = string()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)
    peer_host: str = string()
    peer_port: int = int32()
    incarnation: UUID = uuid()
    lease_ms: int = int32(tag=0)  # how long it goes on leading after a heartbeat; 0: its session
    directory_id: UUID = uuid(tag=1)  # where its logs are; zeros: it does not say


class BrokerRegistration(Message, key=1, versions="0", flexible="0+"):
    """The registration holds; `broker_epoch` is shown in everything that the node says."""

    broker_epoch: int = int64()


class CaughtUpChain(Struct):
    """A syncing member of a chain that has got every record."""

    chain: str = string()
    node_id: int = int32()
    version: int = int32()


class CaughtUpPartition(Struct):
    """A node that has got every record of a moving partition; -1: all who serve have begun to."""

    topic_id: UUID = uuid()
    partition: int = int32()
    node_id: int = int32()
    version: int = int32()


class FailedPartition(Struct):
    """A partition whose log has failed at the node that says so."""

    topic_id: UUID = uuid()
    partition: int = int32()


class BrokerHeartbeat(Message, key=2, versions="0", flexible="0+"):
    """A node is alive."""

    node_id: int = int32()
    broker_epoch: int = int64()
    incarnation: UUID = uuid()
    is_ready: bool = boolean()  # it can serve, and wants to
    caught_up_chains: list[CaughtUpChain] = array(CaughtUpChain)
    caught_up_partitions: list[CaughtUpPartition] = array(CaughtUpPartition)
    trouble: str = string("0+", tag=0)  # why others should serve in its place, if they can
    failed_partitions: list[FailedPartition] = array(FailedPartition, tag=1)  # all, each time


class BrokerHeartbeatAnswer(Message, key=2, versions="0", flexible="0+"):
    """The node was heard, by a controller that surely was one after the heartbeat was sent."""

    is_fenced: bool = boolean()
    session_ms: int = int32()  # how long it may be silent


class LeaveCluster(Message, key=3, versions="0", flexible="0+"):
    """A node is about to stop: let others take its parts."""

    node_id: int = int32()
    broker_epoch: int = int64()
    incarnation: UUID = uuid()


class LeaveClusterAnswer(Message, key=3, versions="0", flexible="0+"):
    """It may."""


class ReserveProducerIds(Message, key=4, versions="0", flexible="0+"):
    """A node wants producer ids to give away."""

    node_id: int = int32()


class ReservedProducerIds(Message, key=4, versions="0", flexible="0+"):
    """Ids from `start` on, before `end`."""

    start: int = int64()
    end: int = int64()


class TopicConfig(Struct):
    """A setting of a topic."""

    name: str = string()
    value: str | None = string(nullable="0+", default=None)


class TopicAssignment(Struct):
    """Where one partition shall be."""

    partition: int = int32()
    node_ids: list[int] = array(INT32)


class WantedTopic(Struct):
    """A topic to create; -1 takes the default."""

    name: str = string()
    partition_count: int = int32(default=-1)
    replication_factor: int = int16(default=-1)
    assignments: list[TopicAssignment] = array(TopicAssignment)
    configs: list[TopicConfig] = array(TopicConfig)


class MakeTopics(Message, key=5, versions="0", flexible="0+"):
    """Create topics; with `is_internal`, the cluster's own, which may be there already."""

    topics: list[WantedTopic] = array(WantedTopic)
    is_internal: bool = boolean()
    validate_only: bool = boolean()


class MadeTopic(Struct):
    """What became of one."""

    name: str = string()
    topic_id: UUID = uuid()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class MadeTopics(Message, key=5, versions="0", flexible="0+"):
    """In the order asked."""

    topics: list[MadeTopic] = array(MadeTopic)


def wanted_topic(topic: NewTopic) -> WantedTopic:
    return WantedTopic(
        name=topic.name, partition_count=topic.partition_count,
        replication_factor=topic.replication_factor,
        assignments=[TopicAssignment(partition=partition, node_ids=list(nodes))
                     for partition, nodes in topic.assignments],
        configs=[TopicConfig(name=name, value=value) for name, value in topic.configs])


def new_topic(topic: WantedTopic) -> NewTopic:
    return NewTopic(
        topic.name, topic.partition_count, topic.replication_factor,
        [(item.partition, item.node_ids) for item in topic.assignments],
        [(config.name, config.value) for config in topic.configs])


def made_topic(answer: TopicAnswer) -> MadeTopic:
    return MadeTopic(name=answer.name or "", topic_id=answer.topic_id, error_code=answer.code,
                     error_message=answer.message)


def topic_answer(made: MadeTopic, state: ClusterState) -> TopicAnswer:
    return TopicAnswer(made.name, made.topic_id, Code(made.error_code), made.error_message,
                       state.topics_by_id.get(made.topic_id))


class Envelope(Message, key=6, versions="0", flexible="0+"):
    """A client's request, as it came; to be answered as if the client had asked here."""

    api_key: int = int16()
    api_version: int = int16()
    client_id: str | None = string(nullable="0+", default=None)
    client_host: str = string()
    body: bytes = binary()


class EnvelopeAnswer(Message, key=6, versions="0", flexible="0+"):
    """The answer, as it is to be sent to the client."""

    body: bytes = binary()


class Pair(NamedTuple):
    """A request and its answer."""

    request: type[Message]
    answer: type[Message]


PAIRS: Final[dict[int, Pair]] = {
    pair.request.KEY: pair for pair in (
        Pair(RegisterBroker, BrokerRegistration),
        Pair(BrokerHeartbeat, BrokerHeartbeatAnswer),
        Pair(LeaveCluster, LeaveClusterAnswer),
        Pair(ReserveProducerIds, ReservedProducerIds),
        Pair(MakeTopics, MadeTopics),
        Pair(Envelope, EnvelopeAnswer),
    )
}
assert len(PAIRS) == 6  # W1: no number twice
assert all(number == pair.answer.KEY for number, pair in PAIRS.items())


def encode_call(request: Message) -> bytes:
    version = request.VERSIONS[-1]
    return _HEAD.pack(request.KEY, version) + request.encode(version)


def decode_call(data: bytes) -> tuple[Message, int]:
    """The request in `data`, and its version, in which the answer is expected."""
    if len(data) < _HEAD.size:
        raise MalformedBytes(f"a call of {len(data)} bytes has no type and version")
    number, version = _HEAD.unpack_from(data)
    pair = PAIRS.get(number)
    if pair is None or version not in pair.request.VERSIONS:
        raise RequestError(f"calls of type {number} version {version} are not known here: "
                           "is the controller of an older version?", code=Code.UNSUPPORTED_VERSION)
    return pair.request.decode(memoryview(data)[_HEAD.size :], version), version


def encode_answer(index: RaftIndex, answer: Message, version: int) -> bytes:
    return _INDEX.pack(index) + answer.encode(version)


def decode_answer(data: bytes, request: Message) -> tuple[RaftIndex, Message]:
    """The answer to `request`, and up to where the metadata must be applied to see its effect."""
    if len(data) < _INDEX.size:
        raise MalformedBytes(f"an answer of {len(data)} bytes has no index")
    (index,) = _INDEX.unpack_from(data)
    answer = PAIRS[request.KEY].answer
    version = request.VERSIONS[-1]
    return RaftIndex(index), answer.decode(memoryview(data)[_INDEX.size :], version)

"""What can go wrong between a client and its brokers, by what to do about it.

`kind` says it, as everywhere (model/errors): RETRY and REFRESH are dealt with inside the client
until its time is over, INVALID is told to whoever set it up.
"""

from typing import Final

from quipu.model.errors import Code, Kind, QuipuError
from quipu.model.ids import TopicPartition

REFRESHED: Final = frozenset({  # somebody else has to be asked
    Code.UNKNOWN_TOPIC_OR_PARTITION, Code.LEADER_NOT_AVAILABLE, Code.NOT_LEADER_OR_FOLLOWER,
    Code.BROKER_NOT_AVAILABLE, Code.REPLICA_NOT_AVAILABLE, Code.NETWORK_EXCEPTION,
    Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR, Code.NOT_CONTROLLER,
    Code.KAFKA_STORAGE_ERROR, Code.LISTENER_NOT_FOUND, Code.FENCED_LEADER_EPOCH,
    Code.UNKNOWN_LEADER_EPOCH, Code.UNKNOWN_TOPIC_ID, Code.INCONSISTENT_TOPIC_ID,
})
RETRIED: Final = frozenset({  # the same, a little later
    Code.UNKNOWN_SERVER_ERROR, Code.CORRUPT_MESSAGE, Code.REQUEST_TIMED_OUT,
    Code.COORDINATOR_LOAD_IN_PROGRESS, Code.OFFSET_NOT_AVAILABLE, Code.THROTTLING_QUOTA_EXCEEDED,
    Code.FETCH_SESSION_ID_NOT_FOUND, Code.INVALID_FETCH_SESSION_EPOCH,
    Code.FETCH_SESSION_TOPIC_ID_ERROR, Code.UNSTABLE_OFFSET_COMMIT,
})


class ClientError(QuipuError):
    """Something between a client and its brokers."""


class ConnectionFailed(ClientError):
    """A broker is not there, or went away."""

    kind = Kind.RETRY
    code = Code.NETWORK_EXCEPTION


class AnswerTooLate(ConnectionFailed):
    """A broker did not answer in time."""

    code = Code.REQUEST_TIMED_OUT


class NotKafka(ConnectionFailed):
    """Whoever answers is no Kafka broker, or breaks the protocol; asking again will not help."""

    kind = Kind.INVALID
    code = Code.CORRUPT_MESSAGE


class NotServed(ClientError):
    """A broker knows no version of a request that this client knows too."""

    code = Code.UNSUPPORTED_VERSION


class NotAuthenticated(ClientError):
    """A broker does not believe who the client is, or the other way round."""

    code = Code.SASL_AUTHENTICATION_FAILED


class Refused(ClientError):
    """A broker answered with an error; `code` is the broker's."""


class UnknownTopic(ClientError):
    """A topic or partition that was asked for does not exist; it may have been made just now."""

    kind = Kind.REFRESH
    code = Code.UNKNOWN_TOPIC_OR_PARTITION


class DataLost(ClientError):
    """Records that were to be read are gone: aged out, truncated, or their topic made anew."""

    code = Code.OFFSET_OUT_OF_RANGE

    def __init__(self, partition: TopicPartition, first: int, end: int, why: str) -> None:
        gone = f"offsets {first} to {end} (exclusive) are gone" if first < end else "no more data"
        super().__init__(f"{partition}: {gone}: {why}")
        self.partition = partition
        self.first = first
        self.end = end
        self.why = why

    def __reduce__(self) -> tuple[type["DataLost"], tuple[TopicPartition, int, int, str]]:
        return type(self), (self.partition, self.first, self.end, self.why)


class TopicRecreated(DataLost):
    """The topic was deleted, and another one has its name: its offsets are of other records."""


def code_name(code: int) -> str:
    """Kafka's name of an error code."""
    return Code(code).name if code in Code.__members__.values() else f"error {code}"


def refused(code: int, doing: str) -> Refused:
    """The error for an answer with `code`, with what can be done about it."""
    known = Code(code) if code in Code.__members__.values() else Code.UNKNOWN_SERVER_ERROR
    kind = Kind.INVALID
    if code in REFRESHED:
        kind = Kind.REFRESH
    elif code in RETRIED or known.value != code:
        kind = Kind.RETRY
    return Refused(f"{doing}: the broker answers {code_name(code)}", code=known, kind=kind)

"""The errors between a client and its brokers, each with whether a retry can help.

`kind` (model/errors) says that: the client itself retries RETRY and REFRESH until its time is over;
INVALID is raised at once, for the caller to correct.
"""

from typing import Final

from quipu.model.errors import Code, ErrorKind, QuipuError
from quipu.model.ids import TopicPartition
from quipu.model.settings_types import Address

REFRESHED: Final = frozenset({  # retried with new metadata: another broker may be responsible
    Code.UNKNOWN_TOPIC_OR_PARTITION, Code.LEADER_NOT_AVAILABLE, Code.NOT_LEADER_OR_FOLLOWER,
    Code.BROKER_NOT_AVAILABLE, Code.REPLICA_NOT_AVAILABLE, Code.NETWORK_EXCEPTION,
    Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR, Code.NOT_CONTROLLER,
    Code.KAFKA_STORAGE_ERROR, Code.LISTENER_NOT_FOUND, Code.FENCED_LEADER_EPOCH,
    Code.UNKNOWN_LEADER_EPOCH, Code.UNKNOWN_TOPIC_ID, Code.INCONSISTENT_TOPIC_ID,
})
RETRIED: Final = frozenset({  # retried at the same broker, a little later
    Code.UNKNOWN_SERVER_ERROR, Code.CORRUPT_MESSAGE, Code.REQUEST_TIMED_OUT,
    Code.COORDINATOR_LOAD_IN_PROGRESS, Code.OFFSET_NOT_AVAILABLE, Code.THROTTLING_QUOTA_EXCEEDED,
    Code.FETCH_SESSION_ID_NOT_FOUND, Code.INVALID_FETCH_SESSION_EPOCH,
    Code.FETCH_SESSION_TOPIC_ID_ERROR, Code.UNSTABLE_OFFSET_COMMIT,
})


class ClientError(QuipuError):
    """A failure between a client and its brokers."""


class ConnectionFailed(ClientError):
    """A broker (`at`) cannot be reached, or closed the connection, because of `why`."""

    kind = ErrorKind.RETRY
    code = Code.NETWORK_EXCEPTION
    at: Address | None = None
    why = ""


class ResponseTooLate(ConnectionFailed):
    """A broker did not respond in time."""

    code = Code.REQUEST_TIMED_OUT


class NotKafka(ConnectionFailed):
    """The other side is no Kafka broker, or breaks the protocol; a retry will not help."""

    kind = ErrorKind.INVALID
    code = Code.CORRUPT_MESSAGE


class NotServed(ClientError):
    """A broker serves none of the versions of a request that this client knows."""

    code = Code.UNSUPPORTED_VERSION


class NotAuthenticated(ClientError):
    """The broker rejects the client's credentials, or the client the broker's."""

    code = Code.SASL_AUTHENTICATION_FAILED


class BrokerRefused(ClientError):
    """A broker responded with an error; `code` is the broker's."""


class CoordinatorAway(ClientError):
    """No broker coordinates a group now: nothing is known of the group."""

    code = Code.COORDINATOR_NOT_AVAILABLE


class UnknownTopic(ClientError):
    """A requested topic or partition does not exist, or was created a moment ago."""

    kind = ErrorKind.REFRESH
    code = Code.UNKNOWN_TOPIC_OR_PARTITION


class DataLost(ClientError):
    """Records that were to be read are gone: expired, truncated, or their topic was recreated."""

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


def broker_refused(code: int, doing: str, why: str | None = None) -> BrokerRefused:
    """The error for a response with `code`; `why` is the broker's error message, if it sent one."""
    known = Code(code) if code in Code.__members__.values() else Code.UNKNOWN_SERVER_ERROR
    kind = ErrorKind.INVALID
    if code in REFRESHED:
        kind = ErrorKind.REFRESH
    elif code in RETRIED or known.value != code:
        kind = ErrorKind.RETRY
    name = code_name(code)
    reason = f"the broker responds with {name}" if why is None else f"{why} [{name}]"
    return BrokerRefused(f"{doing}: {reason}", code=known, kind=kind)

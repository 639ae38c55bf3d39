"""Errors, by what the caller must do about them, and Kafka's error codes.

A room raises a `QuipuError` (or a subclass of its own) whose message says what is wrong and what
to do.  The broker puts `code` into the response, in one place; code branches on `kind` or on the
class, never on the message.
"""

from enum import IntEnum, StrEnum
from typing import Final


class ErrorKind(StrEnum):
    """What the caller must do about an error."""

    RETRY = "retry"  # transient: the same request may succeed later
    REFRESH = "refresh"  # the caller's metadata is stale: refetch it, then retry
    INVALID = "invalid"  # the request is wrong: correct it
    CORRUPT = "corrupt"  # stored bytes are wrong: repair them, or restore from a replica
    BUG = "bug"  # cannot happen: report it


class Code(IntEnum):
    """Kafka's error codes, with Kafka's names."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INVALID_UPDATE_VERSION = 95
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    TELEMETRY_TOO_LARGE = 118
    UNKNOWN_SUBSCRIPTION_ID = 117
    UNSUPPORTED_ASSIGNOR = 112
    INVALID_REGULAR_EXPRESSION = 128


MESSAGE_LENGTH_MAX: Final = 8_000  # characters; of four bytes each, they fit a Kafka string


class QuipuError(Exception):
    """An error that the caller can act on; `code` is the error code that a Kafka client gets.

    The message is cut to MESSAGE_LENGTH_MAX: it may quote what a client sent, of any length.
    """

    kind: ErrorKind = ErrorKind.INVALID
    code: Code = Code.UNKNOWN_SERVER_ERROR

    def __init__(
        self, message: str, *, code: Code | None = None, kind: ErrorKind | None = None
    ) -> None:
        super().__init__(message if len(message) <= MESSAGE_LENGTH_MAX
                         else message[:MESSAGE_LENGTH_MAX - 3] + "...")
        if code is not None:
            self.code = code
        if kind is not None:
            self.kind = kind


class RequestError(QuipuError):
    """A request that cannot be carried out; raised with the error code for the client."""


class MalformedBytes(QuipuError):
    """Received bytes that do not have the format that they should have."""

    code = Code.CORRUPT_MESSAGE


class TooManyElements(RequestError):
    """A request whose arrays have more elements than one request may have."""

    code = Code.INVALID_REQUEST


class OffsetOutOfRange(QuipuError):
    """A read of an offset that the log does not hold."""

    code = Code.OFFSET_OUT_OF_RANGE

    def __init__(self, partition: str, offset: int, start: int, end: int) -> None:
        super().__init__(
            f"{partition}: offset {offset} is outside [{start}, {end}); "
            f"seek to {start} for the oldest record kept or {end} for the next one written"
        )


class RecordsInTier(OffsetOutOfRange):
    """A read of an offset that the log holds only in its remote tier."""

    code = Code.OFFSET_NOT_AVAILABLE


class CorruptLog(QuipuError):
    """Stored bytes are damaged; the log is not cut unless an operator asks for it."""

    kind = ErrorKind.CORRUPT
    code = Code.KAFKA_STORAGE_ERROR


class UnknownFormat(CorruptLog):
    """Stored bytes are undamaged, but another version wrote them and this one cannot read them."""

    kind = ErrorKind.INVALID


class SettingError(QuipuError):
    """A setting that is unknown, or whose value is not allowed."""

    code = Code.INVALID_CONFIG

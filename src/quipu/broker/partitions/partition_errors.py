"""The errors of partitions that cannot be written to or read on this node."""

from quipu.model.errors import Code, ErrorKind, QuipuError, RequestError


class NotLeader(RequestError):
    """This node does not lead the partition; the metadata says which node does."""

    kind = ErrorKind.REFRESH
    code = Code.NOT_LEADER_OR_FOLLOWER


class OffsetNotAvailable(RequestError):
    """This node does not know yet how much is committed; the client should retry."""

    kind = ErrorKind.RETRY
    code = Code.OFFSET_NOT_AVAILABLE


class Halted(QuipuError):
    """This node's replica and another node's contradict each other; an operator must decide.

    Other nodes treat it as a replica whose log has failed.
    """

    kind = ErrorKind.CORRUPT
    code = Code.KAFKA_STORAGE_ERROR

"""DeleteTopics — API key 20, versions 1-6.

Behaviour
    * deletes topics and everything in them
Versions
    v3  TOPIC_DELETION_DISABLED may be returned
    v4  flexible encoding
    v5  error messages
    v6  topics by name or by id
"""

from uuid import UUID

from quipu.wire.fields import STRING, array, int16, int32, string, uuid
from quipu.wire.schema import Request, Response, Struct


class DeleteTopicState(Struct):
    """A topic to delete, by name or by id."""

    name: str | None = string(nullable="0+", default=None)
    topic_id: UUID = uuid()


class DeleteTopicsRequest(Request, key=20, versions="1-6", flexible="4+"):
    """Delete these topics."""

    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(STRING, "1-5")
    timeout: int = int32()


class DeletableTopicResult(Struct):
    """Whether one topic was deleted."""

    name: str | None = string(nullable="6+")
    topic_id: UUID = uuid("6+")
    error_code: int = int16()
    error_message: str | None = string("5+", nullable="0+", default=None)


class DeleteTopicsResponse(Response, key=20, versions="1-6", flexible="4+"):
    """Which topics were deleted."""

    throttle_time: int = int32()
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)

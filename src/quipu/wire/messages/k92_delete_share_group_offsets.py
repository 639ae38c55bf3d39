"""DeleteShareGroupOffsets — API key 92, version 0.

Behaviour
    * removes the share-partition offsets of a group without members, by topic
Versions
    v0  flexible encoding from the start
"""

from uuid import UUID

from quipu.wire.fields import array, int16, int32, string, uuid
from quipu.wire.schema import Request, Response, Struct


class DeleteShareGroupOffsetsRequestTopic(Struct):
    """One topic."""

    topic_name: str = string()


class DeleteShareGroupOffsetsRequest(Request, key=92, versions="0", flexible="0+"):
    """Remove the offsets of these topics."""

    group_id: str = string()
    topics: list[DeleteShareGroupOffsetsRequestTopic] = array(DeleteShareGroupOffsetsRequestTopic)


class DeleteShareGroupOffsetsResponseTopic(Struct):
    """The result for one topic."""

    topic_name: str = string()
    topic_id: UUID = uuid()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class DeleteShareGroupOffsetsResponse(Response, key=92, versions="0", flexible="0+"):
    """The results by topic, or an error of the whole request."""

    throttle_time: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = array(
        DeleteShareGroupOffsetsResponseTopic)

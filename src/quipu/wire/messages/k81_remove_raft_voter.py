"""RemoveRaftVoter — API key 81, version 0.

Behaviour
    * makes a voter of the metadata quorum an observer
Versions
    v0  flexible from the start
"""

from uuid import UUID

from quipu.wire.fields import int16, int32, string, uuid
from quipu.wire.schema import Request, Response


class RemoveRaftVoterRequest(Request, key=81, versions="0", flexible="0+"):
    """Make this node an observer."""

    cluster_id: str | None = string(nullable="0+", default=None)
    voter_id: int = int32()
    voter_directory_id: UUID = uuid()


class RemoveRaftVoterResponse(Response, key=81, versions="0", flexible="0+"):
    """Whether the node is an observer now, or why not."""

    throttle_time: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)

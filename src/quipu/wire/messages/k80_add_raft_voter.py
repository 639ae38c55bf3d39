"""AddRaftVoter — API key 80, versions 0-1.

Behaviour
    * makes a node a voter of the metadata quorum
Versions
    v0  flexible from the start
    v1  whether to respond when the change is committed, or as soon as the leader has written it
"""

from uuid import UUID

from quipu.wire.fields import array, boolean, int16, int32, string, uint16, uuid
from quipu.wire.schema import Request, Response, Struct


class Listener(Struct):
    """An address of the voter."""

    name: str = string()
    host: str = string()
    port: int = uint16()


class AddRaftVoterRequest(Request, key=80, versions="0-1", flexible="0+"):
    """Make this node a voter."""

    cluster_id: str | None = string(nullable="0+", default=None)
    timeout: int = int32()
    voter_id: int = int32()
    voter_directory_id: UUID = uuid()
    listeners: list[Listener] = array(Listener)
    ack_when_committed: bool = boolean("1+", default=True)


class AddRaftVoterResponse(Response, key=80, versions="0-1", flexible="0+"):
    """Whether the node is a voter now, or why not."""

    throttle_time: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)

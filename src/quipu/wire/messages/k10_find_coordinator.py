"""FindCoordinator — API key 10, versions 0-6.

Behaviour
    * returns the broker that coordinates a group (key type 0), a transactional id (1), or a
      share of a share group (2)
Versions
    v1   key type, error message
    v3   flexible encoding
    v4   several keys in one request
    v5   TRANSACTION_ABORTABLE may be returned
    v6   share groups
"""

from quipu.wire.fields import STRING, array, int8, int16, int32, string
from quipu.wire.schema import Request, Response, Struct


class FindCoordinatorRequest(Request, key=10, versions="0-6", flexible="3+"):
    """Find the coordinators of these keys."""

    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = array(STRING, "4+")


class Coordinator(Struct):
    """The coordinator of one key."""

    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class FindCoordinatorResponse(Response, key=10, versions="0-6", flexible="3+"):
    """The coordinators: up to v3 of one key, since v4 of many."""

    throttle_time: int = int32("1+")
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="0+")
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")

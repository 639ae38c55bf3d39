"""FindCoordinator — API key 10.
"""

from quipu.wire.fields import STRING, array, int16, int32, int8, string
from quipu.wire.schema import Request, Response, Struct


class FindCoordinatorRequest(Request, key=10, versions="0-6", flexible="3+"):
    """TODO."""

    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = array(STRING, "4+")


class Coordinator(Struct):
    """TODO."""

    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class FindCoordinatorResponse(Response, key=10, versions="0-6", flexible="3+"):
    """TODO."""

    throttle_time: int = int32("1+")
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="0+")
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")

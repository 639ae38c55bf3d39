"""Encodes the tagged fields of Produce and Fetch responses that name the current leader (KIP-951).

A client that asked the wrong node learns from them which node leads, and its address.
"""

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Final, Protocol

from quipu.wire.primitives import UVARINTS

Leaders = Mapping[tuple[str | bytes, int], tuple[int, int]]  # topic, partition: node id, epoch
NO_LEADERS: Final[Leaders] = {}
ENDPOINTS_MAX: Final = 10_000

_leader = Struct(">iiB")  # node id, epoch, no tagged fields
_int32 = Struct(">i")


class Endpoint(Protocol):
    """A node's address for clients."""

    @property
    def node_id(self) -> int: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def rack(self) -> str | None: ...


def tagged_leader(tag: int, leader: tuple[int, int]) -> bytes:
    """The field `current_leader` of a partition, with its number and size."""
    node_id, epoch = leader
    return bytes((tag, _leader.size)) + _leader.pack(node_id, epoch, 0)


def tagged_endpoints(endpoints: Sequence[Endpoint]) -> bytes:
    """The tagged fields of a whole response: `node_endpoints`, or none."""
    if not endpoints:
        return b"\0"
    assert len(endpoints) <= ENDPOINTS_MAX, len(endpoints)
    body = bytearray(UVARINTS[len(endpoints) + 1])
    for endpoint in endpoints:
        body += _int32.pack(endpoint.node_id)
        body += _compact(endpoint.host)
        body += _int32.pack(endpoint.port)
        body += b"\0" if endpoint.rack is None else _compact(endpoint.rack)
        body.append(0)
    return b"\x01\x00" + UVARINTS[len(body)] + body  # one field, number 0


def _compact(text: str) -> bytes:
    data = text.encode()
    return UVARINTS[len(data) + 1] + data

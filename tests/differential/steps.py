"""A step of a run: one request, for both brokers."""

from typing import NamedTuple

from quipu.wire.schema import Request
from tests.differential.both import for_side
from tests.differential.connections import Sent


class Step(NamedTuple):
    """A request whose ids may be `Both`, and how it is sent."""

    request: Request
    version: int
    connection: int = 0
    limited: bool = False  # a limit of bytes may end the records of its response early
    alone: bool = False  # no other request is on its way meanwhile
    settles: bool = False  # it may change topics or settings, which spread after its response

    def sent(self, side: int) -> Sent:
        return Sent(for_side(self.request, side), self.version)

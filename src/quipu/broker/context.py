"""What a request handler is given: the broker's parts, and who asks.

A handler is a module of handlers/ with one function:

    def handle(broker: Broker, request: XRequest, context: Context) -> XResponse

It may be a coroutine.  It raises a QuipuError only when the whole request fails.

One whose work or answer grows with what is asked for, or with what there is, is a coroutine that
awaits `context.pause` at every step of its loops and makes the arrays of its answer with
`context.array`: so it gives up the loop by time, and its answer is bounded while it is built
(answers.py).  What it looks at may change in a pause.
"""

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from quipu.broker.answers import Answer, Answers
from quipu.model.ids import NodeId
from quipu.runtime.clock import Clock
from quipu.runtime.log_limits import LimitedLog
from quipu.runtime.rng import Rng
from quipu.runtime.workers import Workers
from quipu.storage.data_directory import DataDirectory
from quipu.wire.schema import Struct

if TYPE_CHECKING:  # the parts hold the broker too
    from quipu.broker.cluster import Cluster
    from quipu.broker.fetch_sessions import FetchSessions
    from quipu.broker.groups import Groups
    from quipu.broker.partitions import Partitions
    from quipu.broker.request_queue import RequestQueue
    from quipu.broker.stats import Stats
    from quipu.model.settings import BrokerSettings


S = TypeVar("S", bound=Struct)


class Context(NamedTuple):
    """Who asks, and in which version of the API."""

    api_version: int
    correlation_id: int
    client_id: str | None
    client_host: str
    answer: Answer | None = None  # None: of any size, and built in one go

    def array(self, of: type[S]) -> list[S]:
        """An array of structs for the answer; append to it, and do not look at it."""
        return [] if self.answer is None else self.answer.array(of)

    async def pause(self) -> None:
        """Let others have the loop, if this request has had it for a few milliseconds."""
        if self.answer is not None and self.answer.is_due():
            await self.answer.pause()


@dataclass(slots=True, kw_only=True)
class Broker:
    """The parts of a node that serve requests; put together in node.py."""

    settings: "BrokerSettings"
    clock: Clock
    rng: Rng
    directory: DataDirectory
    node_id: NodeId
    cluster_id: str
    host: str  # as clients are told
    port: int
    rack: str | None
    stats: "Stats"
    cluster: "Cluster"
    partitions: "Partitions"
    groups: "Groups"
    fetch_sessions: "FetchSessions"
    queue: "RequestQueue"
    answers: Answers
    workers: Workers
    limited: LimitedLog = field(  # for whatever a client can bring about
        default_factory=lambda: LimitedLog(logging.getLogger(__name__)))

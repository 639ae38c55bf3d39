"""What a request handler is given: the parts of the broker, and the client that sent the request.

A handler is a module of handlers/ with one function:

    def handle(broker: Broker, request: XRequest, context: Context) -> XResponse

It may be a coroutine.  It raises a QuipuError only when the whole request fails.

A handler whose work or response grows with the request, or with the size of the cluster, is a
coroutine that awaits `context.pause` at every step of its loops and makes the arrays of its
response with `context.array`.  So it gives up the event loop after a few milliseconds, and its
response is bounded while it is built (response_budget.py).  The broker's state may change during a
pause.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar
from uuid import UUID

from quipu.broker.serving.response_budget import ResponseBudget, ResponseBudgets
from quipu.model.ids import ZERO_UUID, NodeId
from quipu.model.listeners import DEFAULT, ClientListener
from quipu.model.principals import ANONYMOUS, Principal
from quipu.runtime.clock import Clock
from quipu.runtime.log_limits import LimitedLog
from quipu.runtime.rng import Rng
from quipu.runtime.workers import Workers
from quipu.wire.schema import Struct

if TYPE_CHECKING:  # the parts hold the broker too
    from quipu.broker.cluster import ClusterDriver
    from quipu.broker.diskless.opening import Diskless
    from quipu.broker.groups import Groups
    from quipu.broker.observing.stats import Stats
    from quipu.broker.partitions.partitions import Partitions
    from quipu.broker.serving.fetch_sessions import FetchSessions
    from quipu.broker.serving.request_queue import RequestQueue
    from quipu.broker.tiering.lookup import TierLookup
    from quipu.model.settings import BrokerSettings


S = TypeVar("S", bound=Struct)


class Context(NamedTuple):
    """The client that sent a request, the listener it used, and the version of the API."""

    api_version: int
    correlation_id: int
    client_id: str | None
    client_host: str
    budget: ResponseBudget | None = None  # None: the response may have any size
    listener: ClientListener = DEFAULT  # the one that the client connected to
    principal: Principal = ANONYMOUS  # the identity of the client
    request_id: UUID = ZERO_UUID  # of a request to the controller, in every attempt the same

    def array(self, of: type[S]) -> list[S]:
        """An array of structs for the response; only append to it: elements cannot be read."""
        return [] if self.budget is None else self.budget.array(of)

    async def pause(self) -> None:
        """Let other requests use the loop, if this one has used it for a few milliseconds."""
        if self.budget is not None and self.budget.is_due():
            await self.budget.pause()


class LogVolume(Protocol):
    """Where this node keeps its logs."""

    @property
    def path(self) -> str: ...
    def space(self) -> tuple[int, int]:
        """The size of the volume in bytes, and how many of them are still free."""
        ...


@dataclass(slots=True, kw_only=True)
class Broker:
    """The parts of a node that serve requests; put together in node.py."""

    settings: "BrokerSettings"
    clock: Clock
    rng: Rng
    directory: LogVolume
    node_id: NodeId
    cluster_id: str
    listeners: Mapping[str, ClientListener]  # by name
    stats: "Stats"
    cluster: "ClusterDriver"
    partitions: "Partitions"
    groups: "Groups"
    fetch_sessions: "FetchSessions"
    queue: "RequestQueue"
    response_budgets: ResponseBudgets
    workers: Workers
    diskless: "Diskless | None" = None  # None: diskless.storage.system.enable is false
    tier: "TierLookup | None" = None  # None: remote.log.storage.system.enable is false
    recompressed: set[UUID] = field(default_factory=set)  # topics; kept by recompressed.py
    limited: LimitedLog = field(  # for events that a client can cause
        default_factory=lambda: LimitedLog(logging.getLogger(__name__)))

"""What a request handler is given: the broker's parts, and who asks.

A handler is a module of handlers/ with one function:

    def handle(broker: Broker, request: XRequest, context: Context) -> XResponse

It may be a coroutine.  It raises a QuipuError only when the whole request fails.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from quipu.model.ids import NodeId
from quipu.runtime.clock import Clock
from quipu.runtime.rng import Rng
from quipu.runtime.workers import Workers
from quipu.storage.data_directory import DataDirectory

if TYPE_CHECKING:  # the parts hold the broker too
    from quipu.broker.cluster import Cluster
    from quipu.broker.fetch_sessions import FetchSessions
    from quipu.broker.groups import Groups
    from quipu.broker.partitions import Partitions
    from quipu.broker.stats import Stats
    from quipu.model.settings import BrokerSettings


class Context(NamedTuple):
    """Who asks, and in which version of the API."""

    api_version: int
    correlation_id: int
    client_id: str | None
    client_host: str


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
    workers: Workers

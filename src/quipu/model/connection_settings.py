"""The part of a broker's settings that is about connections and the memory of requests.

`BrokerSettings` inherits it.

Not here: where clients connect to (broker_settings).
"""

from dataclasses import dataclass
from typing import Final

from quipu.model.kraft_settings import KraftSettings
from quipu.model.settings_types import (
    INT_MAX,
    AddressLimit,
    address_limits,
    int32,
    int64,
    optional_int32,
)

_MINUTE_MS: Final = 60_000
_DAY_MS: Final = 24 * 60 * _MINUTE_MS
_YEAR_MS: Final = 365 * _DAY_MS
_MIB: Final = 1 << 20
_GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings(KraftSettings):
    """The settings of a broker's connections; a class with slots has one base."""

    max_connections: int = int32(
        10_000, "Maximum number of client connections at a time; further ones are closed.",
        dynamic=True, low=1, high=1_000_000)
    max_connections_per_ip: int | None = optional_int32(
        "Maximum number of connections from one IP address at a time, or from one /64 network "
        "with IPv6; further ones are closed. If not set, half of max.connections (Kafka: no "
        "limit).", dynamic=True, low=0, high=1_000_000)
    max_connections_per_ip_overrides: tuple[AddressLimit, ...] = address_limits(
        "Limits that replace max.connections.per.ip for some addresses, such as a proxy's: "
        "IP:COUNT,IP:COUNT.", dynamic=True)
    max_connection_creation_rate: int = int32(
        2000,
        "Maximum number of new connections per second, averaged over ten seconds; a further "
        "connection waits, and is closed if it would wait for more than a second (Kafka: no "
        "limit).", dynamic=True, low=1, high=INT_MAX)
    max_connection_creation_rate_per_ip: int | None = optional_int32(
        "Maximum number of new connections per second from one IP address. If not set, half of "
        "max.connection.creation.rate.", low=1, high=INT_MAX)
    connections_max_idle_ms: int = int64(
        600_000, "Milliseconds without traffic after which a connection is closed; -1: never.",
        low=-1, high=_YEAR_MS)
    socket_request_max_bytes: int = int32(
        100 * _MIB, "Maximum size in bytes of one request; a larger one closes its connection.",
        low=1024, high=_GIB)
    max_request_bytes: int = int32(
        4 * _MIB,
        "Maximum size in bytes of one request other than Produce, Fetch and SyncGroup; decoded, "
        "such a request takes far more memory than its bytes.", low=1024, high=100 * _MIB)
    max_request_elements: int = int32(
        20_000,
        "Maximum number of elements in all arrays of one request other than Produce and Fetch; "
        "clients of large clusters name each partition in one request. Kafka has no such limit. "
        "Decoding 10000 elements takes up to 40 ms; large requests are decoded in a thread.",
        low=100, high=1_000_000)
    max_response_bytes: int = int32(
        32 * _MIB,
        "Maximum size in bytes of one response other than Fetch's; a request that would exceed it "
        "is refused with an error that asks for a smaller one.", low=64 * 1024, high=_GIB)
    queued_max_request_bytes: int = int64(
        256 * _MIB,
        "Memory in bytes for requests that have arrived in part, over all connections; when it is "
        "used up, large requests wait. Requests that wait to be handled may take as much again.",
        low=_MIB, high=1024 * _GIB)
    queued_max_response_bytes: int = int64(
        128 * _MIB,
        "Memory in bytes for responses other than Fetch's that are being built or not sent yet, "
        "over all connections; when it is used up, the connection that reads its responses "
        "slowest is closed.", low=_MIB, high=1024 * _GIB)
    fetch_max_bytes: int = int32(
        55 * _MIB, "Maximum size in bytes of one Fetch response; the first batch may exceed it.",
        low=1024, high=_GIB)
    fetch_max_wait_ms: int = int32(
        60_000,
        "Maximum time in milliseconds for which a Fetch waits for records, even if its client "
        "asks for more.", low=1, high=_DAY_MS)
    request_max_wait_ms: int = int32(
        120_000,
        "Maximum time in milliseconds for which any other request waits for other nodes, even if "
        "its client asks for more.", low=1000, high=_DAY_MS)
    max_incremental_fetch_session_cache_slots: int = int32(
        1000, "Maximum number of incremental fetch sessions at a time; 0: none are created.", low=0,
        high=100_000)
    max_incremental_fetch_session_cache_partitions: int = int32(
        200_000,
        "Maximum number of partitions that are held in memory for fetch sessions, waiting fetches "
        "and clients redirected to another replica, all together; above it no session is created "
        "and no fetch waits.", low=0, high=10_000_000)

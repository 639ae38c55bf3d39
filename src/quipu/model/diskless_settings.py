"""The part of a broker's settings that is about diskless topics: `BrokerSettings` inherits it.

Kafka has no such settings.  Where Inkless has one for the same thing, its name is accepted as well
(settings.ALIASES).

Not here: the setting of a topic (topic_settings), which topics may be diskless (diskless_rules).
"""

from dataclasses import dataclass
from typing import Final

from quipu.model.listener_zones import LISTENER_ZONES
from quipu.model.listeners import ListenerZone
from quipu.model.remote_settings import RemoteSettings
from quipu.model.settings_types import (
    LONG_MAX,
    boolean,
    int32,
    int64,
    optional_line,
    optional_secret,
    ruled,
)

_DAY_MS: Final = 24 * 60 * 60_000
_MIB: Final = 1 << 20
_GIB: Final = 1 << 30
_NO_ZONES: tuple[ListenerZone, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DisklessSettings(RemoteSettings):
    """The settings of diskless topics; most cannot be changed while a broker runs.

    After those of the remote tier, because a class with slots has one base.
    """

    diskless_storage_system_enable: bool = boolean(
        "Allow topics whose records are in object storage alone: needed for diskless.enable=true.",
        default=False)
    diskless_storage_url: str | None = optional_line(
        "Object store of diskless topics: file:///ABSOLUTE/PATH, s3://BUCKET/PREFIX, "
        "gs://BUCKET/PREFIX or az://CONTAINER/PREFIX. If not set, a node without others uses "
        "diskless/ in its directory; the nodes of a cluster need one that all of them can reach.")
    diskless_control_plane_url: str | None = optional_secret(
        "Database that orders the records of diskless topics: sqlite:///ABSOLUTE/PATH, or "
        "postgresql://USER:PASSWORD@HOST/DATABASE, which the nodes of a cluster need. If not set, "
        "a node without others uses a SQLite file in its directory. It may hold a password.")
    diskless_flush_interval_ms: int = int32(
        250,
        "Milliseconds for which produced batches are collected before they are written as one "
        "object: a longer time makes fewer and larger objects, and later responses.",
        low=1, high=60_000)
    diskless_flush_bytes: int = int32(
        4 * _MIB, "Size in bytes of the collected batches at which an object is written at once.",
        low=64 << 10, high=_GIB)
    diskless_buffer_bytes: int = int64(
        64 * _MIB,
        "Memory in bytes for batches that are collected or being written. While there is no room, "
        "no more Produce requests are read from the connections that send them.",
        low=_MIB, high=1024 * _GIB)
    diskless_upload_threads: int = int32(
        8, "Maximum number of objects that are written at a time.", low=1, high=1000)
    diskless_cache_bytes: int = int64(
        128 * _MIB, "Memory in bytes for ranges of objects that were read or written.",
        low=_MIB, high=1024 * _GIB)
    diskless_fetch_threads: int = int32(
        32, "Maximum number of reads of new records from the object store at a time.", low=1,
        high=1000)
    diskless_fetch_lagging_threads: int = int32(
        16,
        "Maximum number of reads of old records from the object store at a time; they do not take "
        "the place of reads of new ones.", low=1, high=1000)
    diskless_object_grace_ms: int = int64(
        10 * 60_000,
        "Milliseconds after which an object that holds no record any more is deleted; a reader "
        "that has found records in it must be done in this time.", low=1000, high=LONG_MAX)
    diskless_cleaner_interval_ms: int = int64(
        120_000, "Milliseconds between two checks for objects to delete or to rewrite.",
        low=100, high=_DAY_MS)
    diskless_retention_interval_ms: int = int64(
        60_000,
        "Milliseconds between two checks of the diskless topics for records beyond retention.ms "
        "and retention.bytes.", low=100, high=_DAY_MS)
    diskless_orphan_grace_ms: int = int64(
        _DAY_MS,
        "Milliseconds after which an object that was stored, and never committed, is deleted.",
        low=180_000, high=LONG_MAX)
    diskless_rewrite_enable: bool = boolean(
        "Copy the rest of objects that are mostly dead, or small, to new ones, so that records "
        "which are kept for long do not keep the bytes of all others.", default=True)
    diskless_rewrite_live_percent: int = int32(
        25, "Percentage of an object's bytes that are in use up to which it is rewritten.",
        low=0, high=99)
    diskless_rewrite_small_bytes: int = int32(
        _MIB, "Size in bytes below which objects are put together into larger ones.",
        low=0, high=28 * _MIB)
    diskless_rewrite_object_bytes: int = int32(
        32 * _MIB, "Maximum size in bytes of an object that is made by rewriting others.",
        low=_MIB, high=224 * _MIB)
    diskless_rewrite_pass_bytes: int = int64(
        256 * _MIB, "Maximum number of bytes that are rewritten in one pass.",
        low=_MIB, high=1024 * _GIB)
    diskless_rewrite_age_ms: int = int64(
        60 * 60_000, "Age in milliseconds below which an object is not rewritten.",
        low=0, high=LONG_MAX)
    diskless_managed_rf_rack_unavailable_threshold_ms: int = int64(
        300_000,
        "Milliseconds after which a rack none of whose brokers is up counts as gone: its replicas "
        "of diskless partitions are removed, until a broker of it is up again.",
        dynamic=True, low=0, high=LONG_MAX)
    diskless_managed_rf_auto_reconcile: bool = boolean(
        "Change the replicas of diskless partitions until there is one in each rack. If false, the "
        "difference is only shown.", default=True, dynamic=True)
    diskless_managed_rf_max_moves_per_sec: int = int32(
        1000,
        "Maximum number of replicas of diskless partitions that are added or removed in a second, "
        "in the whole cluster. Reassignments that clients request are not counted.",
        dynamic=True, low=1, high=1_000_000)
    diskless_client_az_listener_map: tuple[ListenerZone, ...] = ruled(
        _NO_ZONES, LISTENER_ZONES,
        "Zones (racks) of clients by the listener that they connect to, such as "
        "INSIDE:az1,OUTSIDE:az2. Of a diskless partition, a client is shown the replica in its "
        "zone alone. A client whose client.id has diskless_az=ZONE is in that zone instead.")

"""The part of a broker's settings that is about tiered storage: `BrokerSettings` inherits it.

Names and defaults are Kafka's, except for `remote.log.storage.url`, `remote.log.chunk.*`,
`remote.log.compression` and `remote.log.orphan.grace.ms`, which are settings of the built-in
storage.

Not here: the settings of a topic (topic_settings), whether they go together (tiering_rules).
"""

from dataclasses import dataclass
from typing import Final

from quipu.model.settings_types import (
    LONG_MAX,
    boolean,
    choice,
    int32,
    int64,
    optional_line,
    optional_secret,
    path,
    ratio,
)
from quipu.model.throttle_settings import ThrottleSettings

AS_RETENTION: Final = -2  # of local.retention.*: as retention.*

_DAY_MS: Final = 24 * 60 * 60_000
_MIB: Final = 1 << 20
_GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSettings(ThrottleSettings):
    """The settings of a broker's remote tier."""

    remote_log_storage_system_enable: bool = boolean(
        "Allow topics to keep old segments in a remote tier: needed for "
        "remote.storage.enable=true.", default=False)
    remote_log_storage_url: str | None = optional_line(
        "Object store that segments are copied to: file:///ABSOLUTE/PATH, s3://BUCKET/PREFIX, "
        "gs://BUCKET/PREFIX or az://CONTAINER/PREFIX. Needed if "
        "remote.log.storage.system.enable is true.")
    remote_log_storage_manager_class_name: str | None = optional_line(
        "Class that stores segments instead of the built-in storage at remote.log.storage.url. "
        "org.apache.kafka.server.log.remote.storage.LocalTieredStorage and "
        "io.aiven.kafka.tieredstorage.RemoteStorageManager mean the built-in one.")
    remote_log_storage_manager_class_path: str | None = optional_line(
        "Directories, separated by :, in which the class that stores segments is looked for too.")
    remote_log_storage_manager_impl_prefix: str = path(
        "rsm.config.",
        "What the names of the settings begin with that the class that stores segments is given, "
        "without it.")
    remote_log_metadata_manager_class_name: str = path(
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        "Class that stores the metadata of remote segments: Kafka's default, or "
        "io.aiven.kafka.tieredstorage.metadata.storage.RemoteLogMetadataManager.")
    remote_log_metadata_manager_class_path: str | None = optional_line(
        "Directories, separated by :, in which the classes of the next settings are looked for "
        "too.")
    rlmm_config_metadata_storage_connector_class: str | None = optional_line(
        "Class that connects to the storage of the metadata of remote segments.")
    rlmm_config_metadata_storage_serializer_class: str | None = optional_line(
        "Class that encodes the metadata of remote segments.")
    rlmm_config_metadata_storage_url: str | None = optional_secret(
        "Database that stores the metadata of remote segments; it may hold a password.")
    rlmm_config_remote_log_metadata_topic_num_partitions: int = int32(
        50,
        "Number of partitions of the topic that stores the metadata of remote segments, if a "
        "topic does. It is used when the topic is created, with the first tiered topic.",
        low=1, high=1000)
    remote_log_metadata_custom_metadata_max_bytes: int = int32(
        128,
        "Maximum size in bytes of what the storage may add to the metadata of one segment; a "
        "copy with more is deleted again.", low=0, high=_MIB)

    remote_log_manager_task_interval_ms: int = int64(
        30_000, "Milliseconds between two checks of a partition for segments to copy or delete.",
        low=1, high=_DAY_MS)
    remote_log_manager_task_retry_backoff_ms: int = int64(
        500, "Milliseconds after which a failed copy or deletion is tried again; doubled for each "
        "further failure.", low=1, high=_DAY_MS)
    remote_log_manager_task_retry_backoff_max_ms: int = int64(
        30_000, "Maximum time in milliseconds between two tries of a copy or deletion.",
        low=1, high=_DAY_MS)
    remote_log_manager_task_retry_jitter: float = ratio(
        0.2, "Fraction by which the time between two tries varies at random.")
    remote_log_manager_copier_thread_pool_size: int = int32(
        10, "Maximum number of segments that are copied at a time.", dynamic=True, low=1,
        high=1000)
    remote_log_manager_expiration_thread_pool_size: int = int32(
        10, "Maximum number of remote segments that are deleted at a time.",
        dynamic=True, low=1, high=1000)
    remote_log_manager_copy_max_bytes_per_second: int = int64(
        LONG_MAX, "Maximum number of bytes per second that are copied to the remote tier.",
        dynamic=True, low=1, high=LONG_MAX)
    remote_log_manager_fetch_max_bytes_per_second: int = int64(
        LONG_MAX, "Maximum number of bytes per second that are fetched from the remote tier.",
        dynamic=True, low=1, high=LONG_MAX)

    remote_log_reader_threads: int = int32(
        10, "Maximum number of reads from the remote tier at a time.", dynamic=True, low=1,
        high=1000)
    remote_log_reader_max_pending_tasks: int = int32(
        100, "Maximum number of reads that wait for the remote tier; further ones fail, and "
        "clients retry.", low=1, high=1_000_000)
    remote_log_index_file_cache_total_size_bytes: int = int64(
        _GIB, "Memory in bytes for indexes of remote segments.", dynamic=True, low=1, high=LONG_MAX,
        ignored="indexes are parts of footers, which remote.log.chunk.cache.bytes limits.")
    remote_fetch_max_wait_ms: int = int32(
        500,
        "Maximum time in milliseconds for which a Fetch waits for bytes of the remote tier; the "
        "client's max wait is a limit as well.", dynamic=True, low=1, high=_DAY_MS)
    remote_list_offsets_request_timeout_ms: int = int64(
        30_000,
        "Maximum time in milliseconds for one search by timestamp in the remote tier; the "
        "timeout of the ListOffsets request is a limit as well.", dynamic=True, low=1, high=_DAY_MS)

    # Of the built-in storage.
    remote_log_chunk_bytes: int = int32(
        4 * _MIB, "Size in bytes of the ranges in which remote segments are read.",
        low=64 << 10, high=_GIB)
    remote_log_chunk_cache_bytes: int = int64(
        128 * _MIB, "Memory in bytes for ranges of remote segments that were read.",
        low=_MIB, high=1024 * _GIB)
    remote_log_compression: str = choice(
        "none", ("none", "zstd"), "Compression of the bytes of remote segments.")
    remote_log_orphan_grace_ms: int = int64(
        _DAY_MS,
        "Milliseconds after which objects that belong to no segment are deleted from the remote "
        "tier.", low=1000, high=LONG_MAX)

    log_local_retention_ms: int = int64(
        AS_RETENTION,
        "Age in milliseconds at which a segment that the remote tier has is deleted locally; -1: "
        "never, -2: as retention.ms.", dynamic=True, low=AS_RETENTION, high=LONG_MAX)
    log_local_retention_bytes: int = int64(
        AS_RETENTION,
        "Size in bytes of the local segments of a partition above which the oldest that the "
        "remote tier has are deleted locally; -1: no limit, -2: as retention.bytes.",
        dynamic=True, low=AS_RETENTION, high=LONG_MAX)

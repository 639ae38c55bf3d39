"""The table of a broker's settings, with Kafka's names, and their typed values.

Every number declares its minimum and maximum, so that no well-formed value makes a node useless:
a timer that never fires, a segment file for each batch, a default that fills the disk with empty
logs.

Not here: the settings of a remote tier (remote_settings), of diskless topics (diskless_settings),
of Kafka's roles and controller listeners (kraft_settings), of connections (connection_settings) and
of a topic (topic_settings); looking up and parsing values (settings).
"""

# ruff: noqa: RUF009  the calls make dataclass fields

import sys
from dataclasses import dataclass, field
from typing import Final

from quipu.model.connection_settings import ConnectionSettings
from quipu.model.ids import NodeId
from quipu.model.listeners import DEFAULT, DEFAULT_PROTOCOLS, ListenerEndpoint, ListenerProtocol
from quipu.model.settings_rules import DIRECTORY, GZIP_LEVELS
from quipu.model.settings_types import (
    INT_MAX,
    LONG_MAX,
    Address,
    Voter,
    address,
    advertised_endpoints,
    boolean,
    choice,
    choices,
    decimal,
    endpoints,
    int16,
    int32,
    int64,
    listener_protocols,
    member_name,
    optional_address,
    optional_int32,
    optional_int64,
    optional_line,
    optional_secret,
    ratio,
    ruled,
    voters,
)
from quipu.model.topic_settings import (
    BATCH_SIZE_LOW,
    CLEANUP_POLICIES,
    COMPRESSION_TYPES,
    DECOMPRESSED_SIZE_HIGH,
    DECOMPRESSED_SIZE_LOW,
    GZIP_LEVEL_DEFAULT,
    LZ4_LEVEL_MAX,
    RECORDS_CHECKS,
    REPLICAS_MAX,
    ROTATE_AUTO,
    ROTATIONS,
    SEGMENT_MS_LOW,
    SEGMENT_SIZE_LOW,
    SPREADS,
    TIMESTAMP_TYPES,
    ZSTD_LEVEL_MAX,
    ZSTD_LEVEL_MIN,
)

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS
_DAY_MS: Final = 24 * _HOUR_MS
_YEAR_MS: Final = 365 * _DAY_MS
_MIB: Final = 1 << 20
_GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings(ConnectionSettings):
    """The settings of one broker; dynamic ones may be changed while it runs."""

    # Identity and addresses.
    node_id: int | None = optional_int32(
        "This node's number in Kafka's protocol, different on every node (also: broker.id). If "
        "not set, it is node.id.base plus the number at the end of node.name.", low=0, high=INT_MAX)
    node_id_base: int = int32(
        1, "Number of the node whose name ends in -0, for nodes whose node.id is not set.", low=0,
        high=1_000_000_000)
    node_name: str = member_name(
        "quipu-0",
        "This node's name, CHAIN-N: the chain that the node belongs to, and its number in that "
        "chain.")
    broker_rack: str | None = optional_line(
        "Rack or availability zone of this node, as Metadata responses report it.")
    listeners: tuple[ListenerEndpoint, ...] = endpoints(
        (ListenerEndpoint(DEFAULT.name, "127.0.0.1", 9092),),
        "Addresses that Kafka clients connect to: NAME://HOST:PORT,NAME://HOST:PORT, or HOST:PORT "
        "alone for a listener named PLAINTEXT. No host means all interfaces. With port 0 the "
        "system chooses a free port. Other nodes connect to peer.listener instead, or to the "
        "listener here that controller.listener.names names.")
    advertised_listeners: tuple[ListenerEndpoint, ...] = advertised_endpoints(
        "Addresses that clients are given to connect to, NAME://HOST:PORT, for those listeners "
        "where they differ from listeners. A client is given the addresses of the listener that "
        "it connected to. Port 0 means the port that the listener got. A listener without a host "
        "that is not advertised is given with this machine's name.")
    listener_security_protocol_map: tuple[ListenerProtocol, ...] = listener_protocols(
        DEFAULT_PROTOCOLS,
        "Security protocol of each listener: NAME:PROTOCOL,NAME:PROTOCOL. Only PLAINTEXT is "
        "supported yet.")
    peer_listener: Address | None = optional_address(
        "Address that other nodes of the cluster connect to; a node without one is a cluster of "
        "one node. With port 0 the system chooses a free port.")
    advertised_peer_listener: Address | None = optional_address(
        "Address that other nodes are given to connect to, if it differs from peer.listener.")
    peer_secret: str | None = optional_secret(
        "Shared secret with which nodes authenticate to each other and sign their messages; the "
        "same on every node. Required, with at least 16 characters, unless peer.listener is on "
        "loopback. Write it to a file or to QUIPU_PEER_SECRET: other users of the machine can "
        "read a command line.")
    peer_frame_authentication_enable: bool = boolean(
        "Sign every message between nodes with a key derived from peer.secret. If it is off on "
        "both nodes of a connection, they authenticate only once, when they connect: faster, for "
        "a network that nobody else can write to.", default=True)
    peer_max_unauthenticated_connections: int = int32(
        128,
        "Maximum number of connections to peer.listener that have not authenticated yet; above it "
        "the oldest of them is closed. Authenticated connections do not count.", low=1, high=10_000)
    peer_discovery: str | None = optional_line(
        "Where to look for other nodes in addition to controller.quorum.voters: srv:NAME or "
        "a:NAME:PORT in DNS, or static:HOST:PORT,HOST:PORT.")
    peer_discovery_nameserver: Address | None = optional_address(
        "Address of the name server that peer.discovery queries, as an IP and a port. If not set, "
        "the name servers of the system.")
    peer_discovery_interval_ms: int = int64(
        5000, "Milliseconds between two queries of peer.discovery.", low=100, high=_DAY_MS)
    peer_request_timeout_ms: int = int32(
        10_000,
        "Milliseconds that a node waits for another node's reply before it treats that node as "
        "unreachable and retries.", low=1, high=_HOUR_MS)
    metrics_listener: Address = address(
        Address("127.0.0.1", 9464),
        "Address of the HTTP server for /metrics and /health. With port 0 the system chooses a "
        "free port; it also does if this setting is not given and the default port is taken.")
    metrics_max_connections: int = int32(
        256,
        "Maximum number of connections to metrics.listener that have not sent a request yet; a "
        "further one replaces the oldest.", low=128, high=10_000)
    log_dirs: str = ruled(
        "quipu-data", DIRECTORY, "Directory in which the node keeps all its files (also: log.dir). "
        "Kafka allows several: here a node has one, and a machine with several disks runs a node "
        "on each, or joins them to one volume.")

    # The cluster: election of the controller, and detection of dead nodes.
    controller_quorum_voters: tuple[Voter, ...] = voters(
        "Nodes that store the cluster's metadata and elect the controller from among them, "
        "ID@HOST:PORT with commas, the same list on every node; empty: this node alone. It is "
        "used only when the cluster starts for the first time; afterwards the voters are part of "
        "the metadata. Voters without an address are found by peer.discovery.")
    controller_quorum_election_timeout_ms: int = int32(
        1000,
        "Milliseconds without a message from the controller after which a voter starts an "
        "election.", low=10, high=_HOUR_MS)
    controller_quorum_heartbeat_interval_ms: int = int32(
        200, "Milliseconds between two heartbeats of the controller to the other nodes.", low=1,
        high=_HOUR_MS)
    broker_heartbeat_interval_ms: int = int32(
        300, "Milliseconds between two heartbeats of a node to the controller (Kafka: 2000).",
        low=1, high=_HOUR_MS)
    broker_session_timeout_ms: int = int32(
        6000,
        "Milliseconds without a heartbeat after which the controller treats a node as dead "
        "(Kafka: 9000).", low=10, high=_DAY_MS)
    broker_lease_ms: int = int32(
        1500,
        "Milliseconds for which a node may go on leading after the controller last replied to its "
        "heartbeat, whatever broker.session.timeout.ms is. A node whose process has ended is "
        "replaced after this time; a shorter one needs more frequent heartbeats.", low=10,
        high=_DAY_MS)
    controlled_shutdown_enable: bool = boolean(
        "Hand over leadership and leave the chains before the node stops.", default=True)
    controlled_shutdown_timeout_ms: int = int32(
        10_000,
        "Milliseconds that a stopping node waits for the controller to take it out of its chains.",
        low=0, high=_DAY_MS)

    # Chains.
    chain_heartbeat_interval_ms: int = int32(
        200,
        "Milliseconds between two messages in which a node reports its log's end to its "
        "neighbours in a chain.", low=1, high=_MINUTE_MS)
    chain_window_bytes: int = int32(
        8 * _MIB,
        "Maximum number of bytes of one partition that are sent to the next node of its chain and "
        "not yet acknowledged.", low=1024, high=_GIB)
    chain_cold_start_wait_ms: int = int32(
        10_000,
        "Milliseconds that a chain whose nodes were all down waits for its last node to come back "
        "before it continues with those that are back.", low=0, high=_DAY_MS)
    chain_rotate: str = choice(
        ROTATE_AUTO, ROTATIONS, dynamic=True,
        about="Whether each partition of a new topic has its own order of the nodes of its chain, "
        "so that all of them lead partitions and serve reads. auto: only if a topic has fewer "
        "replicas than its chain has nodes, so that these are spread over all of them.")
    chain_spread: str = choice(
        "topic", SPREADS, dynamic=True,
        about="What is placed on one chain: a new topic as a whole, or each of its partitions for "
        "itself, round all chains that fit.")

    # Logging, to standard error.
    logging_level: str = choice(
        "info", ("debug", "info", "warning", "error"),
        "Lowest level of the events that are logged to standard error.")
    logging_format: str = choice(
        "text", ("text", "json"),
        "Format of log lines: text for people, or json for one JSON object per line.")

    # Topics.
    num_partitions: int = int32(
        1, "Number of partitions of a topic that is created without a number.", dynamic=True, low=1,
        high=10_000)
    default_replication_factor: int = int16(
        0,
        "Number of replicas of a topic that is created without a number; 0: as many as its chain "
        "has nodes.", low=0, high=REPLICAS_MAX)
    auto_create_topics_enable: bool = boolean(
        "Create a topic when a client first requests its metadata.", default=True)
    delete_topic_enable: bool = boolean("Allow clients to delete topics.", default=True)
    min_insync_replicas: int | None = optional_int32(
        "Number of in-sync replicas below which writes with acks=all are refused; more than there "
        "are replicas means all of them. If not set, it is one less than the number of replicas of "
        "each partition, and at least 1 (Kafka: 1). 0 means all replicas, and then writes with any "
        "acks are refused.",
        dynamic=True, low=0, high=REPLICAS_MAX)
    max_partitions: int = int32(
        100_000,
        "Maximum number of partitions of all topics together; requests for more are refused. The "
        "cluster's internal topics count and are never refused.", low=1, high=10_000_000)
    max_request_partition_size_limit: int = int32(
        2000, "Maximum number of partitions in one DescribeTopicPartitions response.", low=1,
        high=100_000)

    # Limits on what producers send.
    message_max_bytes: int = int32(
        1_048_588,
        "Largest size in bytes of one batch of records; a larger batch is refused with "
        "MESSAGE_TOO_LARGE.", dynamic=True, low=BATCH_SIZE_LOW, high=_GIB)
    message_decompressed_max_bytes: int = int32(
        64 * _MIB,
        "Largest size in bytes of the records of one compressed batch after decompression; a "
        "batch that may exceed it is refused before memory is allocated for it.", dynamic=True,
        low=DECOMPRESSED_SIZE_LOW, high=DECOMPRESSED_SIZE_HIGH)
    log_message_records_check: str = choice(
        "all", RECORDS_CHECKS, dynamic=True,
        about="Which batches are stored only after their records were found to match the batch "
        "header: all, only uncompressed ones, or none; see message.records.check.")
    log_message_records_check_max_ms: int = int32(
        5000,
        "Maximum time in milliseconds for which the compressed batches of one request are checked "
        "in threads; batches not checked by then are refused with REQUEST_TIMED_OUT, which "
        "clients retry.", low=100, high=600_000)
    compression_type: str = choice(
        "producer", COMPRESSION_TYPES, dynamic=True,
        about="Compression of stored batches: `producer` stores them as the producer sent them, "
        "uncompressed, gzip, snappy, lz4 or zstd compress those that differ again.")
    compression_gzip_level: int = ruled(
        GZIP_LEVEL_DEFAULT, GZIP_LEVELS, "Level of compression.type=gzip; -1 is gzip's own.",
        dynamic=True)
    compression_lz4_level: int = int32(
        9, "Level of compression.type=lz4.", dynamic=True, low=1, high=LZ4_LEVEL_MAX)
    compression_zstd_level: int = int32(
        3, "Level of compression.type=zstd.", dynamic=True, low=ZSTD_LEVEL_MIN,
        high=ZSTD_LEVEL_MAX)
    log_message_timestamp_type: str = choice(
        "CreateTime", TIMESTAMP_TYPES, dynamic=True,
        about="Which timestamp is stored: CreateTime, the one that the producer set, or "
        "LogAppendTime, the broker's time when it appended the batch.")
    log_message_timestamp_before_max_ms: int = int64(
        LONG_MAX,
        "Largest time in milliseconds by which a record's timestamp may lie before the broker's "
        "clock; an older record is refused.", dynamic=True, low=0, high=LONG_MAX)
    log_message_timestamp_after_max_ms: int = int64(
        _HOUR_MS,
        "Largest time in milliseconds by which a record's timestamp may lie after the broker's "
        "clock; a later record is refused.", dynamic=True, low=0, high=LONG_MAX)
    producer_id_expiration_ms: int = int32(
        _DAY_MS,
        "Milliseconds without a batch after which a partition forgets an idempotent producer.",
        dynamic=True, low=1000, high=INT_MAX)
    max_producer_ids_per_partition: int = int32(
        20_000,
        "Maximum number of idempotent producers that a partition remembers. A new one replaces "
        "those that have sent nothing for producer.id.retry.ms; if there are none, it is refused "
        "with THROTTLING_QUOTA_EXCEEDED.", low=1, high=100_000)
    producer_id_retry_ms: int = int32(
        300_000,
        "Milliseconds for which an idempotent producer may retry a batch and is not replaced by a "
        "new producer; at least the clients' delivery.timeout.ms (message.timeout.ms in "
        "librdkafka).", low=1000, high=INT_MAX)

    # Logs.
    log_segment_bytes: int = int32(
        1 << 30, "Size in bytes at which a segment file is closed and a new one is started.",
        dynamic=True, low=SEGMENT_SIZE_LOW, high=INT_MAX)
    log_roll_ms: int | None = optional_int64(
        "Age in milliseconds at which a segment is closed and a new one is started. If not set, "
        "log.roll.hours.", dynamic=True, low=SEGMENT_MS_LOW, high=LONG_MAX)
    log_roll_hours: int = int32(
        168, "Age in hours at which a segment is closed and a new one is started.", low=1,
        high=INT_MAX)
    log_index_interval_bytes: int = int32(
        4096,
        "Bytes of log between two entries of the segment's index; fewer bytes make lookups read "
        "less and the index larger.", dynamic=True, low=64, high=_GIB)
    log_index_size_max_bytes: int = int32(
        10 * _MIB,
        "Size in bytes of an index at which its segment is closed and a new one is started.",
        dynamic=True, low=1024, high=_GIB)
    log_cleanup_policy: tuple[str, ...] = choices(
        ("delete",), CLEANUP_POLICIES,
        "What happens to old records: delete, compact or both; see cleanup.policy.", dynamic=True)
    log_cleaner_enable: bool = boolean(
        "Compact the logs of topics whose cleanup.policy includes compact.", default=True)
    log_cleaner_backoff_ms: int = int64(
        15_000, "Milliseconds between two searches for a log to compact, if there was none.",
        dynamic=True, low=0, high=_DAY_MS)
    log_cleaner_dedupe_buffer_size: int = int64(
        128 * _MIB,
        "Bytes of memory for the keys of one pass of compaction, 32 bytes a key; a log with more "
        "uncompacted keys takes several passes.", dynamic=True, low=_MIB, high=64 << 30)
    log_cleaner_delete_retention_ms: int = int64(
        _DAY_MS, "Milliseconds for which a compacted topic keeps tombstones; see "
        "delete.retention.ms.", dynamic=True, low=0, high=LONG_MAX)
    log_cleaner_io_max_bytes_per_second: float = decimal(
        sys.float_info.max, "Bytes that compaction reads and writes per second, together.",
        dynamic=True, low=1 << 16)
    log_cleaner_max_compaction_lag_ms: int = int64(
        LONG_MAX, "Longest time in milliseconds for which a record stays uncompacted.",
        dynamic=True, low=1, high=LONG_MAX)
    log_cleaner_min_cleanable_ratio: float = ratio(
        0.5, "Fraction of the bytes of a log that must be uncompacted before it is compacted.",
        dynamic=True)
    log_cleaner_min_compaction_lag_ms: int = int64(
        0, "Shortest time in milliseconds for which a record stays uncompacted.", dynamic=True,
        low=0, high=LONG_MAX)
    log_retention_ms: int | None = optional_int64(
        "Age in milliseconds at which a segment is deleted; -1: never. If not set, "
        "log.retention.minutes.", dynamic=True, low=-1, high=LONG_MAX)
    log_retention_minutes: int | None = optional_int32(
        "Age in minutes at which a segment is deleted; -1: never. If not set, log.retention.hours.",
        low=-1, high=INT_MAX)
    log_retention_hours: int = int32(
        168, "Age in hours at which a segment is deleted; -1: never.", low=-1, high=INT_MAX)
    log_retention_bytes: int = int64(
        -1,
        "Size in bytes of a partition above which its oldest segments are deleted; -1: no limit.",
        dynamic=True, low=-1, high=LONG_MAX)
    log_retention_check_interval_ms: int = int64(
        300_000, "Milliseconds between two checks for segments to delete.", low=100, high=_DAY_MS)
    log_flush_interval_messages: int = int64(
        LONG_MAX,
        "Number of records after which a log is flushed to disk. With 1, a response to acks=1 or "
        "acks=all is sent only after the records are on disk.", dynamic=True, low=1, high=LONG_MAX)
    log_flush_interval_ms: int = int64(
        1000,
        "Milliseconds after which new records of a log are flushed to disk (Kafka leaves it to "
        "the operating system).", dynamic=True, low=1, high=LONG_MAX)
    log_scrub_bytes_per_second: int = int64(
        8 * _MIB,
        "Bytes of complete segments that are read again and checked per second; 0: no check "
        "(Kafka has no such check).", low=0, high=1 << 40)
    log_scrub_interval_ms: int = int64(
        86_400_000,
        "Minimum time in milliseconds from the start of one check of all segments to the start of "
        "the next.", low=1000, high=365 * 86_400_000)

    # Consumer groups.
    offsets_topic_num_partitions: int = int32(
        4,
        "Number of partitions of the topic that stores groups and their offsets (Kafka: 50). It "
        "is used when the topic is created, with the first group; the leader of a partition "
        "coordinates its groups.", low=1, high=1000)
    offsets_retention_minutes: int = int32(
        10_080, "Minutes for which the offsets of a group without members are kept.", low=1,
        high=INT_MAX)
    offsets_retention_check_interval_ms: int = int64(
        600_000, "Milliseconds between two checks for expired offsets.", low=100, high=_DAY_MS)
    offset_metadata_max_bytes: int = int32(
        4096, "Maximum size in bytes of the metadata of one committed offset.", low=0, high=_MIB)
    group_min_session_timeout_ms: int = int32(
        6000, "Shortest session timeout in milliseconds that a member may request.", low=1,
        high=_DAY_MS)
    group_max_session_timeout_ms: int = int32(
        1_800_000, "Longest session timeout in milliseconds that a member may request.", low=1,
        high=_DAY_MS)
    group_initial_rebalance_delay_ms: int = int32(
        300,
        "Milliseconds that a new group waits for more members before its first rebalance, so that "
        "consumers that start together share one (Kafka: 3000).", low=0, high=5 * _MINUTE_MS)
    group_max_size: int = int32(
        1000, "Maximum number of members of one group (Kafka: no limit).", low=1, high=10_000)
    group_max_rebalance_timeout_ms: int = int32(
        60 * _MINUTE_MS,
        "Maximum time in milliseconds for which a rebalance waits for a member, even if the "
        "member asks for more.", low=1000, high=_DAY_MS)
    group_max_count: int = int32(
        10_000, "Maximum number of groups that this node coordinates.", low=1, high=1_000_000)
    group_max_bytes: int = int32(
        4 * _MIB,
        "Memory in bytes for one group: its members, their metadata and their assignments.",
        low=64 << 10, high=64 * _MIB)
    group_max_total_bytes: int = int64(
        128 * _MIB,
        "Memory in bytes for the members of all groups. A group that uses no more than its share, "
        "this divided by group.max.count, is never refused because of it.", low=_MIB,
        high=16 * _GIB)
    group_max_offsets: int = int32(
        100_000, "Maximum number of committed offsets of one group.", low=1, high=10_000_000)
    offsets_max_count: int = int32(
        500_000, "Maximum number of committed offsets that this node keeps.", low=1,
        high=100_000_000)
    offsets_max_bytes: int = int64(
        128 * _MIB, "Memory in bytes for committed offsets and their metadata.", low=_MIB,
        high=16 * _GIB)

    # Names of the settings that the operator gave a value for.
    explicit: frozenset[str] = field(default=frozenset(), compare=False)
    # Kafka's settings without effect that were given, with their texts (kafka_settings).
    without_effect: tuple[tuple[str, str], ...] = field(default=(), compare=False, repr=False)
    # Settings of the classes that other settings name, such as rsm.config.bucket, by full name;
    # they may be secrets.
    of_classes: tuple[tuple[str, str], ...] = field(default=(), compare=False, repr=False)

    @property
    def own_id(self) -> NodeId:
        """This node's id: node.id, or the one that follows from node.id.base and node.name."""
        if self.node_id is not None:
            return NodeId(self.node_id)
        return NodeId(self.node_id_base + int(self.node_name.rpartition("-")[2]))

    @property
    def chain_name(self) -> str:
        """The chain of this node: the part of node.name before its number."""
        return self.node_name.rpartition("-")[0]

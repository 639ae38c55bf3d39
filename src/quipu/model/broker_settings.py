"""What a broker can be told, spelled as Kafka spells it: the table and its typed values.

Every number declares the least and the most that it may be, so that no value that is well-formed
can make a node useless: a timer that never fires, a segment file for each batch, a default that
fills the disk with empty logs.

Not here: what a topic can be told (topic_settings), reading and rendering values (settings).
"""

# ruff: noqa: RUF009  the calls make dataclass fields

from dataclasses import dataclass, field
from typing import Final

from quipu.model.ids import NodeId
from quipu.model.settings_types import (
    INT_MAX,
    LONG_MAX,
    Address,
    AddressLimit,
    Voter,
    address,
    address_limits,
    boolean,
    choice,
    choices,
    int16,
    int32,
    int64,
    member_name,
    optional_address,
    optional_int32,
    optional_int64,
    optional_line,
    optional_secret,
    path,
    voters,
)
from quipu.model.topic_settings import (
    BATCH_SIZE_LOW,
    CLEANUP_POLICIES,
    DECOMPRESSED_SIZE_HIGH,
    DECOMPRESSED_SIZE_LOW,
    RECORDS_CHECKS,
    REPLICAS_MAX,
    SEGMENT_MS_LOW,
    SEGMENT_SIZE_LOW,
    TIMESTAMP_TYPES,
)

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS
_DAY_MS: Final = 24 * _HOUR_MS
_YEAR_MS: Final = 365 * _DAY_MS
_MIB: Final = 1 << 20
_GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """What a broker is told when it starts, and what may be changed while it runs."""

    # Who it is and where it is reached.
    node_id: int | None = optional_int32(
        "This node's number in Kafka's protocol (also: broker.id); if not set, node.id.base plus "
        "the number in node.name.", low=0, high=INT_MAX)
    node_id_base: int = int32(
        1, "Number of the first node of this node's chain, where node.id is not set.",
        low=0, high=1_000_000_000)
    node_name: str = member_name(
        "quipu-0", "This node's name, for people: the chain it belongs to and its number there.")
    broker_rack: str | None = optional_line("Rack or availability zone that this node is in.")
    listeners: Address = address(
        Address("127.0.0.1", 9092),
        "Address that Kafka clients connect to; port 0 takes any that is free.")
    advertised_listeners: Address | None = optional_address(
        "Address that clients are told to connect to, if it differs from listeners; "
        "port 0 stands for the port that listeners really got.")
    peer_listener: Address | None = optional_address(
        "Address that other nodes connect to; a node without one is a cluster of its own. "
        "Port 0 takes any that is free.")
    advertised_peer_listener: Address | None = optional_address(
        "Address that other nodes are told to connect to, if it differs from peer.listener.")
    peer_secret: str | None = optional_secret(
        "What nodes of one cluster prove to each other that they know, and sign their messages "
        "with; all must have the same. Required, with 16 characters at least, unless peer.listener "
        "is on loopback. Give it in a file or in QUIPU_PEER_SECRET: a command line can be read by "
        "others.")
    peer_frame_authentication_enable: bool = boolean(
        "Sign every message between nodes with a key made of peer.secret. Where it is off on both "
        "nodes of a connection, peer.secret is proved once, when they connect: faster, for a "
        "network that nobody else can write to.", default=True)
    peer_max_unauthenticated_connections: int = int32(
        128, "Connections to peer.listener that have not proved yet that they know peer.secret; "
        "beyond it the oldest of them is closed, never one of a node.", low=1, high=10_000)
    peer_discovery: str | None = optional_line(
        "Where other nodes are looked for besides controller.quorum.voters: srv:NAME or "
        "a:NAME:PORT in DNS, or static:HOST:PORT,HOST:PORT.")
    peer_discovery_nameserver: Address | None = optional_address(
        "Name server that peer.discovery asks, by its number; if not set, those of the system.")
    peer_discovery_interval_ms: int = int64(
        5000, "How often peer.discovery is asked.",
        low=100, high=_DAY_MS)
    peer_request_timeout_ms: int = int32(
        10_000, "How long one node waits for another's answer.", low=1, high=_HOUR_MS)
    metrics_listener: Address = address(
        Address("127.0.0.1", 9464),
        "Address of the HTTP server for /metrics and /health; port 0 takes any that is free, and "
        "so does a node that was not told a port and finds this one taken.")
    metrics_max_connections: int = int32(
        256, "Connections to metrics.listener that have not asked yet; a further one takes the "
        "place of the oldest.", low=128, high=10_000)
    log_dirs: str = path("quipu-data", "Directory that holds everything a node keeps.")

    # The cluster: who elects the controller, and who is taken for dead.
    controller_quorum_voters: tuple[Voter, ...] = voters(
        "Nodes that keep the cluster's metadata and elect the controller among them, the same "
        "list on every node; empty: this node alone. It counts when the cluster is first "
        "started; later the list that the nodes have agreed on does. Voters whose addresses are "
        "left out are found by peer.discovery.")
    controller_quorum_election_timeout_ms: int = int32(
        1000, "A voter that hears of no controller for this long asks to become it.",
        low=10, high=_HOUR_MS)
    controller_quorum_heartbeat_interval_ms: int = int32(
        200, "How often the controller tells the other nodes that it is there.",
        low=1, high=_HOUR_MS)
    broker_heartbeat_interval_ms: int = int32(
        300, "How often a node tells the controller that it is alive (Kafka: 2000).",
        low=1, high=_HOUR_MS)
    broker_session_timeout_ms: int = int32(
        6000, "A node that the controller has not heard of for this long is taken for dead "
        "(Kafka: 9000).", low=10, high=_DAY_MS)
    broker_lease_ms: int = int32(
        1500, "How long a node may go on leading after it last reached the controller, whatever "
        "broker.session.timeout.ms is. A node whose process has ended is replaced when this is "
        "over; a shorter time needs more frequent heartbeats.", low=10, high=_DAY_MS)
    controlled_shutdown_enable: bool = boolean(
        "Leave the chains in order before stopping.", default=True)
    controlled_shutdown_timeout_ms: int = int32(
        10_000, "How long a stopping node waits for the controller's leave.", low=0, high=_DAY_MS)

    # Chains.
    chain_heartbeat_interval_ms: int = int32(
        200, "How often a node of a chain tells its neighbours how far it is.",
        low=1, high=_MINUTE_MS)
    chain_window_bytes: int = int32(
        8 * _MIB, "Bytes of one partition that are on their way to the next node, at most.",
        low=1024, high=_GIB)
    chain_cold_start_wait_ms: int = int32(
        10_000, "How long a chain whose nodes were all down waits for the last of them to come "
        "back before it goes on with those that did.", low=0, high=_DAY_MS)

    # What it tells its operator, on standard error.
    logging_level: str = choice(
        "info", ("debug", "info", "warning", "error"), "Events below this level are left out.")
    logging_format: str = choice(
        "text", ("text", "json"), "Lines for people, or one JSON object per line for machines.")

    # Topics.
    num_partitions: int = int32(
        1, "Partitions of a topic that is created without saying how many.", dynamic=True,
        low=1, high=10_000)
    default_replication_factor: int = int16(
        0, "Replicas of a topic that is created without saying how many; 0: as many as its chain "
        "has nodes.", low=0, high=REPLICAS_MAX)
    auto_create_topics_enable: bool = boolean(
        "Create a topic when a client first asks for it.", default=True)
    delete_topic_enable: bool = boolean("Allow topics to be deleted.", default=True)
    min_insync_replicas: int = int32(
        0, "Nodes of a chain that must serve for writes with acks=all to be taken; 0: all of them, "
        "and then for any write (Kafka: 1).", dynamic=True, low=0, high=REPLICAS_MAX)
    max_partitions: int = int32(
        100_000, "Partitions of all topics together, at most: topics and partitions beyond are "
        "refused, whoever asks for them. The cluster's own topics count and are never refused.",
        low=1, high=10_000_000)
    max_request_partition_size_limit: int = int32(
        2000, "Partitions in one answer of DescribeTopicPartitions, at most.", low=1, high=100_000)

    # Connections and memory.
    max_connections: int = int32(
        10_000, "Connections at a time; further ones are closed.",
        low=1, high=1_000_000)
    max_connections_per_ip: int | None = optional_int32(
        "Connections of one address at a time, of a /64 network with IPv6; further ones are "
        "closed. If not set, half of max.connections (Kafka sets no bound).", low=0, high=1_000_000)
    max_connections_per_ip_overrides: tuple[AddressLimit, ...] = address_limits(
        "What counts instead of max.connections.per.ip for some addresses, such as a proxy's: "
        "IP:COUNT,IP:COUNT.")
    max_connection_creation_rate: int = int32(
        2000, "New connections a second, averaged over ten; further ones wait for a second at most "
        "before they are served, or are closed (Kafka sets no bound).", low=1, high=INT_MAX)
    max_connection_creation_rate_per_ip: int | None = optional_int32(
        "The same of one address; if not set, half of max.connection.creation.rate.",
        low=1, high=INT_MAX)
    connections_max_idle_ms: int = int64(
        600_000, "A connection that is silent for this long is closed; -1: never.",
        low=-1, high=_YEAR_MS)
    socket_request_max_bytes: int = int32(
        100 * _MIB, "Size of one request, at most; a larger one closes its connection.",
        low=1024, high=_GIB)
    max_request_bytes: int = int32(
        2 * _MIB, "Size of one request other than Produce, Fetch and SyncGroup, at most: such a "
        "request takes far more memory than its bytes.", low=1024, high=100 * _MIB)
    max_request_elements: int = int32(
        10_000, "Elements that the arrays of one request other than Produce and Fetch may have, "
        "all together. Reading so many takes 10 to 20 ms, in which nothing else is done.",
        low=100, high=1_000_000)
    max_response_bytes: int = int32(
        32 * _MIB, "Size of one answer other than Fetch's, at most; whoever asks for more is told "
        "to ask for less at a time.", low=64 * 1024, high=_GIB)
    queued_max_request_bytes: int = int64(
        256 * _MIB,
        "Memory for requests that have arrived in part, all connections together; "
        "when it is used up, large requests wait. As much again is for requests that wait for "
        "their turn.", low=_MIB, high=1024 * _GIB)
    queued_max_response_bytes: int = int64(
        128 * _MIB,
        "Memory for answers other than Fetch's that are being made or have not left yet, all "
        "connections together; when it is used up, whoever takes its answer slowest is closed.",
        low=_MIB, high=1024 * _GIB)
    fetch_max_bytes: int = int32(
        55 * _MIB, "Size of one fetch's answer, about.",
        low=1024, high=_GIB)
    fetch_max_wait_ms: int = int32(
        60_000, "How long a fetch waits for records, at most, whatever its client asks for.",
        low=1, high=_DAY_MS)
    request_max_wait_ms: int = int32(
        120_000, "How long any other request waits for other nodes, at most, whatever its client "
        "asks for.", low=1000, high=_DAY_MS)
    max_incremental_fetch_session_cache_slots: int = int32(
        1000, "Incremental fetch sessions at a time; 0: none are given.", low=0, high=100_000)
    max_incremental_fetch_session_cache_partitions: int = int32(
        200_000, "Partitions that fetch sessions and waiting fetches hold, and that connections "
        "were sent elsewhere for, all together; beyond it no session is given and no fetch waits.",
        low=0, high=10_000_000)

    # What producers may send.
    message_max_bytes: int = int32(
        1_048_588, "Size of one batch of records, at most.", dynamic=True,
        low=BATCH_SIZE_LOW, high=_GIB)
    message_decompressed_max_bytes: int = int32(
        64 * _MIB, "Size of the records of one compressed batch once they are decompressed, at "
        "most; a batch that may exceed it is refused before memory is taken for it.",
        dynamic=True, low=DECOMPRESSED_SIZE_LOW, high=DECOMPRESSED_SIZE_HIGH)
    log_message_records_check: str = choice(
        "all", RECORDS_CHECKS, dynamic=True,
        about="Which batches are stored only if their records are what their header says: all, or "
        "only uncompressed ones, or none; see message.records.check.")
    log_message_records_check_max_ms: int = int32(
        5000, "How long one request's compressed batches are looked at in threads, at most; those "
        "that are not reached by then are put off with REQUEST_TIMED_OUT, which clients retry.",
        low=100, high=600_000)
    compression_type: str = choice(
        "producer", ("producer",), dynamic=True,
        about="Compression of stored batches: as the producer sent them. Kafka's other values are "
        "refused, since this broker never compresses anew; set it at the producer.")
    log_message_timestamp_type: str = choice(
        "CreateTime", TIMESTAMP_TYPES, dynamic=True,
        about="Whether a record's time is its producer's or that of its arrival.")
    log_message_timestamp_before_max_ms: int = int64(
        LONG_MAX, "How far a record's time may lie in the past.", dynamic=True,
        low=0, high=LONG_MAX)
    log_message_timestamp_after_max_ms: int = int64(
        _HOUR_MS, "How far a record's time may lie in the future.", dynamic=True,
        low=0, high=LONG_MAX)
    producer_id_expiration_ms: int = int32(
        _DAY_MS, "An idempotent producer that is silent for this long is forgotten.",
        low=1000, high=INT_MAX)
    max_producer_ids_per_partition: int = int32(
        20_000,
        "Idempotent producers that a partition remembers. A new one takes the place of those that "
        "are silent for producer.id.retry.ms; if there are none it is refused with "
        "THROTTLING_QUOTA_EXCEEDED.", low=1, high=100_000)
    producer_id_retry_ms: int = int32(
        300_000,
        "For how long an idempotent producer may send a batch again, and is remembered whoever "
        "else comes: at least delivery.timeout.ms (message.timeout.ms in librdkafka).",
        low=1000, high=INT_MAX)

    # Logs.
    log_segment_bytes: int = int32(
        1 << 30, "Size at which a segment file is closed and a new one begun.",
        dynamic=True, low=SEGMENT_SIZE_LOW, high=INT_MAX)
    log_roll_ms: int | None = optional_int64(
        "Age at which a segment is closed; if not set, log.roll.hours.", dynamic=True,
        low=SEGMENT_MS_LOW, high=LONG_MAX)
    log_roll_hours: int = int32(
        168, "Age in hours at which a segment is closed.",
        low=1, high=INT_MAX)
    log_index_interval_bytes: int = int32(
        4096, "Bytes of log between two entries of its index.", dynamic=True, low=64, high=_GIB)
    log_index_size_max_bytes: int = int32(
        10 * _MIB, "Size of an index at which its segment is closed.", dynamic=True,
        low=1024, high=_GIB)
    log_cleanup_policy: tuple[str, ...] = choices(
        ("delete",), CLEANUP_POLICIES, "What happens to old records; see cleanup.policy.",
        dynamic=True)
    log_retention_ms: int | None = optional_int64(
        "Age at which a segment is deleted, -1: never; if not set, log.retention.minutes.",
        dynamic=True, low=-1, high=LONG_MAX)
    log_retention_minutes: int | None = optional_int32(
        "Age in minutes at which a segment is deleted; if not set, log.retention.hours.",
        low=-1, high=INT_MAX)
    log_retention_hours: int = int32(
        168, "Age in hours at which a segment is deleted, -1: never.", low=-1, high=INT_MAX)
    log_retention_bytes: int = int64(
        -1, "Size of a partition beyond which its oldest segments are deleted, -1: any.",
        dynamic=True, low=-1, high=LONG_MAX)
    log_retention_check_interval_ms: int = int64(
        300_000, "How often segments are looked at for deletion.", low=100, high=_DAY_MS)
    log_flush_interval_messages: int = int64(
        LONG_MAX,
        "Records after which a log is flushed to disk. With 1 an answer to acks=1 or acks=all "
        "waits until the records are flushed.", dynamic=True, low=1, high=LONG_MAX)
    log_flush_interval_ms: int = int64(
        1000, "Time after which a log is flushed to disk (Kafka leaves this to the system).",
        dynamic=True, low=1, high=LONG_MAX)
    log_scrub_bytes_per_second: int = int64(
        8 * _MIB, "Bytes of complete segments that are read again and checked, per second; 0: none "
        "are (Kafka has no such check).", low=0, high=1 << 40)
    log_scrub_interval_ms: int = int64(
        86_400_000, "Time from the beginning of one check of all segments to the next, at least.",
        low=1000, high=365 * 86_400_000)

    # Consumer groups.
    offsets_topic_num_partitions: int = int32(
        4, "Partitions of the topic that keeps groups and their offsets (Kafka: 50). Counts when "
        "the topic is created, with the first group; who leads a partition coordinates its groups.",
        low=1, high=1000)
    offsets_retention_minutes: int = int32(
        10_080, "Offsets of a group without members are kept for this long.", low=1, high=INT_MAX)
    offsets_retention_check_interval_ms: int = int64(
        600_000, "How often offsets are looked at for expiry.", low=100, high=_DAY_MS)
    offset_metadata_max_bytes: int = int32(
        4096, "Size of the metadata that goes with a committed offset, at most.", low=0, high=_MIB)
    group_min_session_timeout_ms: int = int32(
        6000, "Shortest session timeout a member may ask.",
        low=1, high=_DAY_MS)
    group_max_session_timeout_ms: int = int32(
        1_800_000, "Longest session timeout a member may ask.", low=1, high=_DAY_MS)
    group_initial_rebalance_delay_ms: int = int32(
        300, "How long a new group waits for more members before its first rebalance (Kafka: "
        "3000). Consumers that start together share one rebalance.", low=0, high=5 * _MINUTE_MS)
    group_max_size: int = int32(
        1000, "Members of one group, at most (Kafka sets no bound).", low=1, high=10_000)
    group_max_rebalance_timeout_ms: int = int32(
        60 * _MINUTE_MS, "How long a rebalance waits for a member, at most, whatever it asks for.",
        low=1000, high=_DAY_MS)
    group_max_count: int = int32(
        10_000, "Groups that this node coordinates, at most.", low=1, high=1_000_000)
    group_max_bytes: int = int32(
        4 * _MIB, "Memory for one group: its members, their metadata and their assignments.",
        low=64 << 10, high=64 * _MIB)
    group_max_total_bytes: int = int64(
        128 * _MIB, "Memory for the members of all groups. A group that takes no more than its "
        "share, this over group.max.count, is never refused for it.", low=_MIB, high=16 * _GIB)
    group_max_offsets: int = int32(
        100_000, "Committed offsets of one group, at most.", low=1, high=10_000_000)
    offsets_max_count: int = int32(
        500_000, "Committed offsets that this node keeps, at most.", low=1, high=100_000_000)
    offsets_max_bytes: int = int64(
        128 * _MIB, "Memory for committed offsets and the metadata that goes with them.",
        low=_MIB, high=16 * _GIB)

    explicit: frozenset[str] = field(default=frozenset(), compare=False)  # names that were given

    @property
    def own_id(self) -> NodeId:
        """This node's number."""
        if self.node_id is not None:
            return NodeId(self.node_id)
        return NodeId(self.node_id_base + int(self.node_name.rpartition("-")[2]))

    @property
    def chain_name(self) -> str:
        """The chain that this node's name says it belongs to."""
        return self.node_name.rpartition("-")[0]

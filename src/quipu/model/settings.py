"""The tables of settings: what a broker and a topic can be told, spelled as Kafka spells it.

`BrokerSettings` and `TopicSettings` are the tables and, at the same time, the typed values that
the rest of the program reads.  A topic's settings are its own overrides on top of the broker's:
the `broker` column names where a default comes from.

Invariants
    C1  a setting is honoured, or says in `ignored` that it is not and why
    C2  unknown names are refused, with the nearest known one
    C3  a value was checked when it was given: holders of a table may assume that it is allowed

Not here: reading files and environment (settings_sources), the kinds of settings (settings_types).
"""

# ruff: noqa: RUF009  the calls make dataclass fields

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from quipu.model.errors import SettingError
from quipu.model.ids import NodeId
from quipu.model.nearest import nearest
from quipu.model.settings_types import (
    LONG_MAX,
    Address,
    Setting,
    Value,
    Voter,
    address,
    attribute_name,
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
    optional_text,
    ratio,
    settings_of,
    text,
    voters,
)

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS
_DAY_MS: Final = 24 * _HOUR_MS
_MIB: Final = 1 << 20
_TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")
_POLICIES: Final = ("delete", "compact")
_NO_COMPACTION: Final = "compaction is a later feature; a compacted topic keeps every record."
_BY_HAND: Final = "data is lost only when someone asks for it, by an unclean election."


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """What a broker is told when it starts, and what may be changed while it runs."""

    # Who it is and where it is reached.
    node_id: int | None = optional_int32(
        "This node's number in Kafka's protocol (also: broker.id); if not set, node.id.base plus "
        "the number in node.name.", low=0)
    node_id_base: int = int32(
        1, "Number of the first node of this node's chain, where node.id is not set.", low=0)
    node_name: str = member_name(
        "quipu-0", "This node's name, for people: the chain it belongs to and its number there.")
    broker_rack: str | None = optional_text("Rack or availability zone that this node is in.")
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
    peer_secret: str | None = optional_text(
        "What nodes of one cluster prove to each other that they know; all must have the same. "
        "Without it, whoever reaches peer.listener can join.")
    peer_discovery: str | None = optional_text(
        "Where other nodes are looked for besides controller.quorum.voters: srv:NAME or "
        "a:NAME:PORT in DNS, or static:HOST:PORT,HOST:PORT.")
    peer_discovery_nameserver: Address | None = optional_address(
        "Name server that peer.discovery asks, by its number; if not set, those of the system.")
    peer_discovery_interval_ms: int = int64(5000, "How often peer.discovery is asked.", low=100)
    peer_request_timeout_ms: int = int32(
        10_000, "How long one node waits for another's answer.", low=1)
    metrics_listener: Address = address(
        Address("127.0.0.1", 9464),
        "Address of the HTTP server for /metrics and /health; port 0 takes any that is free, and "
        "so does a node that was not told a port and finds this one taken.")
    log_dirs: str = text("quipu-data", "Directory that holds everything a node keeps.")

    # The cluster: who elects the controller, and who is taken for dead.
    controller_quorum_voters: tuple[Voter, ...] = voters(
        "Nodes that keep the cluster's metadata and elect the controller among them, the same "
        "list on every node; empty: this node alone. It counts when the cluster is first "
        "started; later the list that the nodes have agreed on does. Voters whose addresses are "
        "left out are found by peer.discovery.")
    controller_quorum_election_timeout_ms: int = int32(
        1000, "A voter that hears of no controller for this long asks to become it.", low=10)
    controller_quorum_heartbeat_interval_ms: int = int32(
        200, "How often the controller tells the other nodes that it is there.", low=1)
    broker_heartbeat_interval_ms: int = int32(
        500, "How often a node tells the controller that it is alive (Kafka: 2000).", low=1)
    broker_session_timeout_ms: int = int32(
        6000, "A node that the controller has not heard of for this long is taken for dead "
        "(Kafka: 9000).", low=10)
    controlled_shutdown_enable: bool = boolean(
        "Leave the chains in order before stopping.", default=True)
    controlled_shutdown_timeout_ms: int = int32(
        10_000, "How long a stopping node waits for the controller's leave.", low=0)

    # Chains.
    chain_heartbeat_interval_ms: int = int32(
        200, "How often a node of a chain tells its neighbours how far it is.", low=1)
    chain_window_bytes: int = int32(
        8 * _MIB, "Bytes of one partition that are on their way to the next node, at most.",
        low=1024)
    chain_cold_start_wait_ms: int = int32(
        10_000, "How long a chain whose nodes were all down waits for the last of them to come "
        "back before it goes on with those that did.", low=0)

    # What it tells its operator, on standard error.
    logging_level: str = choice(
        "info", ("debug", "info", "warning", "error"), "Events below this level are left out.")
    logging_format: str = choice(
        "text", ("text", "json"), "Lines for people, or one JSON object per line for machines.")

    # Topics.
    num_partitions: int = int32(
        1, "Partitions of a topic that is created without saying how many.", low=1, dynamic=True)
    default_replication_factor: int = int16(
        0, "Replicas of a topic that is created without saying how many; 0: as many as its chain "
        "has nodes.", low=0)
    auto_create_topics_enable: bool = boolean(
        "Create a topic when a client first asks for it.", default=True)
    delete_topic_enable: bool = boolean("Allow topics to be deleted.", default=True)
    min_insync_replicas: int = int32(
        0, "Nodes of a chain that must serve for writes with acks=all to be taken; 0: all of them, "
        "and then for any write (Kafka: 1).", low=0, dynamic=True)
    max_request_partition_size_limit: int = int32(
        2000, "Partitions in one answer of DescribeTopicPartitions, at most.", low=1)

    # Connections and memory.
    max_connections: int = int32(10_000, "Connections at a time; further ones are closed.", low=1)
    connections_max_idle_ms: int = int64(
        600_000, "A connection that is silent for this long is closed; -1: never.", low=-1)
    socket_request_max_bytes: int = int32(
        100 * _MIB, "Size of one request, at most; a larger one closes its connection.", low=1024)
    queued_max_request_bytes: int = int64(
        256 * _MIB,
        "Memory for requests that have arrived in part, all connections together; "
        "when it is used up, large requests wait.", low=_MIB)
    fetch_max_bytes: int = int32(55 * _MIB, "Size of one fetch's answer, about.", low=1024)
    max_incremental_fetch_session_cache_slots: int = int32(
        1000, "Incremental fetch sessions at a time; 0: none are given.")

    # What producers may send.
    message_max_bytes: int = int32(
        1_048_588, "Size of one batch of records, at most.", dynamic=True)
    compression_type: str = choice(
        "producer", ("producer",), dynamic=True,
        about="Compression of stored batches: as the producer sent them. Kafka's other values are "
        "refused, since this broker never compresses anew; set it at the producer.")
    log_message_timestamp_type: str = choice(
        "CreateTime", _TIMESTAMP_TYPES, dynamic=True,
        about="Whether a record's time is its producer's or that of its arrival.")
    log_message_timestamp_before_max_ms: int = int64(
        LONG_MAX, "How far a record's time may lie in the past.", dynamic=True)
    log_message_timestamp_after_max_ms: int = int64(
        _HOUR_MS, "How far a record's time may lie in the future.", dynamic=True)
    producer_id_expiration_ms: int = int32(
        _DAY_MS, "An idempotent producer that is silent for this long is forgotten.", low=1)

    # Logs.
    log_segment_bytes: int = int32(
        1 << 30, "Size at which a segment file is closed and a new one begun.", low=14,
        dynamic=True)
    log_roll_ms: int | None = optional_int64(
        "Age at which a segment is closed; if not set, log.roll.hours.", low=1, dynamic=True)
    log_roll_hours: int = int32(168, "Age in hours at which a segment is closed.", low=1)
    log_index_interval_bytes: int = int32(
        4096, "Bytes of log between two entries of its index.", low=1, dynamic=True)
    log_index_size_max_bytes: int = int32(
        10 * _MIB, "Size of an index at which its segment is closed.", low=4, dynamic=True)
    log_cleanup_policy: tuple[str, ...] = choices(
        ("delete",), _POLICIES, "What happens to old records; see cleanup.policy.", dynamic=True)
    log_retention_ms: int | None = optional_int64(
        "Age at which a segment is deleted, -1: never; if not set, log.retention.minutes.",
        low=-1, dynamic=True)
    log_retention_minutes: int | None = optional_int32(
        "Age in minutes at which a segment is deleted; if not set, log.retention.hours.", low=-1)
    log_retention_hours: int = int32(
        168, "Age in hours at which a segment is deleted, -1: never.", low=-1)
    log_retention_bytes: int = int64(
        -1, "Size of a partition beyond which its oldest segments are deleted, -1: any.",
        low=-1, dynamic=True)
    log_retention_check_interval_ms: int = int64(
        300_000, "How often segments are looked at for deletion.", low=1)
    log_flush_interval_messages: int = int64(
        LONG_MAX,
        "Records after which a log is flushed to disk. With 1 an answer to acks=1 or acks=all "
        "waits until the records are flushed.", low=1, dynamic=True)
    log_flush_interval_ms: int = int64(
        1000, "Time after which a log is flushed to disk (Kafka leaves this to the system).",
        low=1, dynamic=True)

    # Consumer groups.
    offsets_topic_num_partitions: int = int32(
        4, "Partitions of the topic that keeps groups and their offsets (Kafka: 50). Counts when "
        "the topic is created, with the first group; who leads a partition coordinates its groups.",
        low=1, high=1000)
    offsets_retention_minutes: int = int32(
        10_080, "Offsets of a group without members are kept for this long.", low=1)
    offsets_retention_check_interval_ms: int = int64(
        600_000, "How often offsets are looked at for expiry.", low=1)
    offset_metadata_max_bytes: int = int32(
        4096, "Size of the metadata that goes with a committed offset, at most.")
    group_min_session_timeout_ms: int = int32(6000, "Shortest session timeout a member may ask.")
    group_max_session_timeout_ms: int = int32(
        1_800_000, "Longest session timeout a member may ask.")
    group_initial_rebalance_delay_ms: int = int32(
        300, "How long a new group waits for more members before its first rebalance (Kafka: "
        "3000). Consumers that start together share one rebalance.")
    group_max_size: int = int32(
        1000, "Members of one group, at most (Kafka sets no bound).", low=1, high=10_000)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """What a topic can be told; everything may be changed while it is in use."""

    cleanup_policy: tuple[str, ...] = choices(
        ("delete",), _POLICIES, broker=("log.cleanup.policy",),
        about="What happens to old records. With delete, retention applies. With compact alone "
        "nothing is deleted; compaction itself is a later feature, so every record is kept.")
    compression_type: str = choice(
        "producer", ("producer",), broker=("compression.type",),
        about="Compression of stored batches: as the producer sent them. Kafka's other values are "
        "refused, since this broker never compresses anew; set it at the producer.")
    delete_retention_ms: int = int64(
        _DAY_MS, "How long a compacted topic keeps tombstones.", ignored=_NO_COMPACTION)
    file_delete_delay_ms: int = int64(
        60_000, "How long the files of a deleted segment stay.",
        ignored="files go at once; readers keep what they have mapped.")
    flush_messages: int = int64(
        LONG_MAX, low=1, broker=("log.flush.interval.messages",),
        about="Records after which the log is flushed to disk. With 1 an answer to acks=1 or "
        "acks=all waits until the records are flushed.")
    flush_ms: int = int64(
        1000, "Time after which the log is flushed to disk.", low=1,
        broker=("log.flush.interval.ms",))
    index_interval_bytes: int = int32(
        4096, "Bytes of log between two entries of its index.", low=1,
        broker=("log.index.interval.bytes",))
    max_compaction_lag_ms: int = int64(
        LONG_MAX, "Longest time for which a record stays uncompacted.", low=1,
        ignored=_NO_COMPACTION)
    max_message_bytes: int = int32(
        1_048_588, "Size of one batch of records, at most.", broker=("message.max.bytes",))
    message_timestamp_after_max_ms: int = int64(
        _HOUR_MS, "How far a record's time may lie in the future.",
        broker=("log.message.timestamp.after.max.ms",))
    message_timestamp_before_max_ms: int = int64(
        LONG_MAX, "How far a record's time may lie in the past.",
        broker=("log.message.timestamp.before.max.ms",))
    message_timestamp_type: str = choice(
        "CreateTime", _TIMESTAMP_TYPES, broker=("log.message.timestamp.type",),
        about="Whether a record's time is its producer's or that of its arrival.")
    min_cleanable_dirty_ratio: float = ratio(
        0.5, "Share of a log that must be uncompacted before it is compacted.",
        ignored=_NO_COMPACTION)
    min_compaction_lag_ms: int = int64(
        0, "Shortest time for which a record stays uncompacted.", ignored=_NO_COMPACTION)
    min_insync_replicas: int = int32(
        0, "Nodes of the chain that must serve for writes with acks=all to be taken; 0: all of "
        "them, and then for any write.", low=0, broker=("min.insync.replicas",))
    preallocate: bool = boolean(
        "Reserve a segment's space on disk when it is created.", default=False,
        ignored="space is taken as it is needed.")
    retention_bytes: int = int64(
        -1, "Size of a partition beyond which its oldest segments are deleted, -1: any.", low=-1,
        broker=("log.retention.bytes",))
    retention_ms: int = int64(
        7 * _DAY_MS, "Age at which a segment is deleted, -1: never.", low=-1,
        broker=("log.retention.ms", "log.retention.minutes", "log.retention.hours"))
    segment_bytes: int = int32(
        1 << 30, "Size at which a segment file is closed and a new one begun.", low=14,
        broker=("log.segment.bytes",))
    segment_index_bytes: int = int32(
        10 * _MIB, "Size of an index at which its segment is closed.", low=4,
        broker=("log.index.size.max.bytes",))
    segment_jitter_ms: int = int64(
        0, "Random part of segment.ms, so that segments do not all roll at once.",
        ignored="closing a segment is cheap here.")
    segment_ms: int = int64(
        7 * _DAY_MS, "Age at which a segment is closed and a new one begun.", low=1,
        broker=("log.roll.ms", "log.roll.hours"))
    unclean_leader_election_enable: bool = boolean(
        "Let a replica lead that has not got every record.", default=False,
        ignored=_BY_HAND)


BROKER: Final[Mapping[str, Setting]] = settings_of(BrokerSettings)
TOPIC: Final[Mapping[str, Setting]] = settings_of(TopicSettings)
ALIASES: Final = {"broker.id": "node.id", "log.dir": "log.dirs"}

assert all(name in BROKER for row in TOPIC.values() for name in row.broker)
assert all(name in BROKER for name in ALIASES.values())


def parse(rows: Mapping[str, Setting], name: str, value: str, where: str = "") -> Value:
    """The typed value of `name=value`, or a `SettingError` that says what is allowed (C2, C3)."""
    row = find(rows, name, where)
    try:
        return row.kind.parse(value.strip())
    except ValueError:
        raise SettingError(
            f"{name}={_shorten(value)}{_at(where)}: must be {row.kind.allowed}") from None


def find(rows: Mapping[str, Setting], name: str, where: str = "") -> Setting:
    """The row of `name`, or a `SettingError` with the nearest name (C2)."""
    row = rows.get(name)
    if row is None:
        near = nearest(name, [*rows, *ALIASES], cutoff=0.5)
        hint = f"; did you mean {near}?" if near else ""
        raise SettingError(f"unknown setting {_shorten(name)}{_at(where)}{hint}")
    return row


def value_of(settings: BrokerSettings | TopicSettings, name: str) -> Value:
    """The value of the setting called `name`, which must be one of the table."""
    value: Value = getattr(settings, attribute_name(name))
    return value


def with_dynamic(settings: BrokerSettings, overrides: Mapping[str, str]) -> BrokerSettings:
    """`settings` with values that were changed while the node runs."""
    values = {attribute_name(name): parse(BROKER, name, value) for name, value in overrides.items()}
    return dataclasses.replace(settings, **values)  # type: ignore[arg-type]  # checked by parse


def topic_settings(overrides: Mapping[str, str], broker: BrokerSettings) -> TopicSettings:
    """What applies to a topic: its own `overrides`, else what the broker says."""
    for name in overrides:
        find(TOPIC, name)
    values = {
        attribute_name(name): parse(TOPIC, name, overrides[name])
        if name in overrides
        else inherited(row, broker)
        for name, row in TOPIC.items()
    }
    return TopicSettings(**values)  # type: ignore[arg-type]  # checked by parse


def inherited(row: Setting, broker: BrokerSettings) -> Value:
    """The value of a topic's setting for a topic that does not override it."""
    for name in row.broker:
        value = value_of(broker, name)
        if value is not None:
            return in_ms(name, value)
    return row.default


def in_ms(name: str, value: Value) -> Value:
    """Hours and minutes turned into the milliseconds that topics count in; -1 stays -1."""
    factor = {"hours": _HOUR_MS, "minutes": _MINUTE_MS}.get(name.rpartition(".")[2], 1)
    return value * factor if isinstance(value, int) and value > 0 and factor > 1 else value


def _shorten(value: str) -> str:
    return value if len(value) <= 80 else f"{value[:80]}..."


def _at(where: str) -> str:
    return f" ({where})" if where else ""

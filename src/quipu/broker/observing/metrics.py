"""A node's metrics in Prometheus' text format, version 0.0.4, in pieces.

`exposition` is a generator of pieces of bounded size, so that other tasks can run in between: with
10,000 partitions a scrape is 3 MB of text and must not delay a produce request.  That is why the
text is written here and not by `prometheus-client`, which needs 15 times as long, without a pause,
and 7 MiB of memory; the tests use its parser.

The metrics are listed in tables, those of metric_tables.py and `_FAMILIES`; `reference` makes the
documentation from them.  A name includes its unit, and ends in `_total` if it only grows.

Not here: the format of a line (text_format), the metrics of managed placement (placement_metrics),
counting (stats), HTTP (http), what the operating system knows (runtime/process).
"""

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from quipu import __version__
from quipu.broker.observing.cluster_metrics import FAMILIES as CLUSTER
from quipu.broker.observing.cluster_metrics import ClusterSample, cluster_lines, under_min_isr
from quipu.broker.observing.diskless_metrics import (
    DISKLESS,
    ZONE_HITS,
    DisklessTotals,
    ZoneSample,
)
from quipu.broker.observing.metric_tables import (
    GAUGES,
    NET,
    NET_BY_REASON,
    PEERS,
    REMOTE,
    STATS,
    STATS_BY_REASON,
    TIER,
    TIERED_PARTITION,
)
from quipu.broker.observing.metric_tables import Family as _Family
from quipu.broker.observing.placement_metrics import (
    CONTROLLER_PLACEMENT,
    CONTROLLER_RACK,
    CONTROLLER_TOTALS,
    DISKLESS_LAG,
    EFFECTIVE_RF,
    ControllerPlacement,
    DisklessLagSample,
    controller_placement,
    diskless_lags,
)
from quipu.broker.observing.stats import RemoteStats, Stats
from quipu.broker.observing.text_format import PIECE_LINES_MAX
from quipu.broker.observing.text_format import head as _head
from quipu.broker.observing.text_format import histogram_lines as _histogram
from quipu.broker.observing.text_format import labelled as _family
from quipu.broker.observing.text_format import labels_of as _labels
from quipu.broker.observing.text_format import single as _single
from quipu.model.errors import Code
from quipu.model.partition_log import PartitionLog, ReplicationStatus
from quipu.runtime import process
from quipu.runtime.net.limits import NetStats
from quipu.runtime.peers.peer_net import PeerStats
from quipu.runtime.process import Usage
from quipu.wire.messages import REQUESTS

__all__ = [
    "GroupSample", "LagSample", "Sources", "Stats", "TierSample", "TierTotals", "exposition",
    "reference",
]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
LAG_LINES_MAX: Final = 100_000  # bounded, because clients can commit any number of offsets


T = TypeVar("T")


class GroupSample(NamedTuple):
    """A consumer group at the moment of a scrape."""

    group: str
    state: str
    members: int


class LagSample(NamedTuple):
    """How many records of a partition a group has not consumed after its committed offset."""

    group: str
    topic: str
    partition: int
    lag: int


class ChainSample(NamedTuple):
    """This node's role and lag in the replication of one partition."""

    topic: str
    partition: int
    status: ReplicationStatus


class TierTotals(NamedTuple):
    """Reads of the remote tier, and their cache."""

    pending_reads: int = 0
    cache_bytes: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    cache_prefetches: int = 0
    cache_loaded_bytes: int = 0
    cache_evictions: int = 0
    cache_errors: int = 0


class TierSample(NamedTuple):
    """The remote tier of a partition that this node leads."""

    topic: str
    partition: int
    remote_bytes: int
    metadata_count: int
    copy_lag_bytes: int
    copy_lag_segments: int
    delete_lag_bytes: int
    delete_lag_segments: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where a scrape reads its numbers; every function is called for every scrape."""

    stats: Stats
    net: NetStats
    usage: Callable[[], Usage] = process.usage
    started_at: float = field(default_factory=process.started_at)  # seconds since 1970 UTC
    api_names: Mapping[int, str] = field(
        default_factory=lambda: {
            key: request.__name__.removesuffix("Request") for key, request in REQUESTS.items()
        }
    )
    partitions: Callable[[], Sequence[PartitionLog]] = tuple
    chains: Callable[[], Iterable[ChainSample]] = tuple
    cluster: Callable[[], Iterable[ClusterSample]] = tuple
    groups: Callable[[], Iterable[GroupSample]] = tuple
    lags: Callable[[], Iterable[LagSample]] = tuple
    tier: Callable[[], TierTotals] = TierTotals
    tiered: Callable[[], Iterable[TierSample]] = tuple
    diskless: Callable[[], DisklessTotals] = DisklessTotals
    zones: Callable[[], Iterable[ZoneSample]] = tuple
    diskless_lags: Callable[[], Iterable[DisklessLagSample]] = tuple
    placement: Callable[[], Iterable[ControllerPlacement]] = tuple  # none: no controller is here
    peers: Callable[[], PeerStats] = PeerStats
    ready: Callable[[], bool] = lambda: False
    stepped_back: Callable[[], bool] = lambda: False


_REQUESTS: Final = _Family(
    "quipu_request_seconds",
    "histogram",
    "From a received request to its response given to the socket; a fetch's wait counts.",
    "api",
)
_REQUEST_ERRORS: Final = _Family(
    "quipu_request_errors_total",
    "counter",
    "Requests, and batches of Produce, refused with one of Kafka's codes.",
    "api, error",
)
_FLUSHES: Final = _Family("quipu_flush_seconds", "histogram", "Time of one flush to disk.")
_READY: Final = _Family("quipu_ready", "gauge", "1 while the response of `/health/ready` is 200.")
_STEPPED_BACK: Final = _Family(
    "quipu_stepped_back", "gauge", "1 while this node is fenced because its disk failed."
)
_BUILD: Final = _Family("quipu_build_info", "gauge", "Always 1.", "version, python")
_PARTITIONS: Final = _Family("quipu_partitions", "gauge", "Partitions of this node.")
_FAILED: Final = _Family(
    "quipu_partitions_failed", "gauge", "Partitions that are offline because their log failed."
)
_FAILED_PARTITION: Final = _Family(
    "quipu_partition_failed", "gauge", "1 for a partition that is offline because its log failed.",
    "topic, partition",
)
_LOG_SIZE: Final = _Family(
    "quipu_partition_size_bytes", "gauge", "Bytes of a log's segments.", "topic, partition"
)
_LOG_START: Final = _Family(
    "quipu_partition_start_offset", "gauge", "First offset kept.", "topic, partition"
)
_LOG_END: Final = _Family(
    "quipu_partition_end_offset", "gauge", "Offset of the next record.", "topic, partition"
)
_HIGH_WATERMARK: Final = _Family(
    "quipu_partition_high_watermark", "gauge", "Consumers read below it.", "topic, partition"
)
_LEADING: Final = _Family("quipu_partitions_leading", "gauge", "Partitions that this node leads.")
_SHORT: Final = _Family(
    "quipu_partitions_under_replicated",
    "gauge",
    "Partitions that this node leads and that some node of their chain does not serve.",
)
_HALTED: Final = _Family(
    "quipu_partitions_halted",
    "gauge",
    "Partitions whose replication has stopped because two nodes' committed records differ.",
)
_ROLE: Final = _Family(
    "quipu_chain_role", "gauge", "1 for the role of this node in a chain.", "topic, partition, role"
)
_EPOCH: Final = _Family(
    "quipu_chain_epoch", "gauge", "The chain's epoch, as this node knows it.", "topic, partition"
)
_CHAIN_LAG: Final = _Family(
    "quipu_chain_lag_records",
    "gauge",
    "Records, of any type, that the node before has and this one has not.",
    "topic, partition",
)
_LAG_AFTER: Final = _Family(
    "quipu_chain_successor_lag_records",
    "gauge",
    "Records, of any type, that this node has and the next has not acknowledged.",
    "topic, partition",
)
_IN_FLIGHT: Final = _Family(
    "quipu_chain_in_flight_bytes",
    "gauge",
    "Bytes on their way to the next node; at most `chain.window.bytes`.",
    "topic, partition",
)
_GROUPS: Final = _Family("quipu_groups", "gauge", "Consumer groups.", "state")
_MEMBERS: Final = _Family("quipu_group_members", "gauge", "Members of a group.", "group")
_LAG: Final = _Family(
    "quipu_group_lag_records",
    "gauge",
    "Records between a group's committed offset and the high watermark; 100,000 lines at most.",
    "group, topic, partition",
)
_CPU: Final = _Family("process_cpu_seconds_total", "counter", "User and system CPU time.")
_RESIDENT: Final = _Family("process_resident_memory_bytes", "gauge", "Resident memory.")
_OPEN_FILES: Final = _Family("process_open_fds", "gauge", "Open file descriptors.")
_OPEN_FILES_MAX: Final = _Family("process_max_fds", "gauge", "Limit of open file descriptors.")
_STARTED: Final = _Family(
    "process_start_time_seconds", "gauge", "When the process started, since 1970 UTC."
)

_FAMILIES: Final = (
    _REQUESTS,
    _REQUEST_ERRORS,
    _FLUSHES,
    _READY,
    _STEPPED_BACK,
    _BUILD,
    _PARTITIONS,
    _FAILED,
    _FAILED_PARTITION,
    _LOG_SIZE,
    _LOG_START,
    _LOG_END,
    _HIGH_WATERMARK,
    _LEADING,
    _SHORT,
    _HALTED,
    _ROLE,
    _EPOCH,
    _CHAIN_LAG,
    _LAG_AFTER,
    _IN_FLIGHT,
    _GROUPS,
    _MEMBERS,
    _LAG,
    _CPU,
    _RESIDENT,
    _OPEN_FILES,
    _OPEN_FILES_MAX,
    _STARTED,
)


_PLACEMENT: Final = (EFFECTIVE_RF, *CONTROLLER_TOTALS.values(), *CONTROLLER_RACK.values(),
                     *CONTROLLER_PLACEMENT.values(), *DISKLESS_LAG.values())


def exposition(sources: Sources) -> Iterator[str]:
    """The metrics as text, in pieces of at most `PIECE_LINES_MAX` samples."""
    yield _process(sources)
    yield _scalars(sources.net, NET) + _scalars(sources.stats, STATS)
    yield _scalars(sources.peers(), PEERS) + _scalars(sources.stats, GAUGES)
    yield _scalars(sources.stats.remote, REMOTE) + _scalars(sources.tier(), TIER)
    yield _scalars(sources.diskless(), DISKLESS)
    yield from _family(ZONE_HITS, (
        (_labels(topic=each.topic), each.ratio) for each in sources.zones()))
    yield _by_reason(sources.net, NET_BY_REASON) + _by_reason(sources.stats, STATS_BY_REASON)
    yield _requests(sources.stats, sources.api_names)
    yield from _partitions(sources.partitions())
    chains: list[ChainSample] = []
    yield from _gathered(sources.chains(), chains)
    yield from _chains(chains)
    yield from under_min_isr(
        [(each.topic, each.partition) for each in chains if each.status.is_under_min_isr])
    yield from cluster_lines(sources.cluster())
    tiered: list[TierSample] = []
    yield from _gathered(sources.tiered(), tiered)
    yield from _tiered(tiered)
    yield from diskless_lags(sources.diskless_lags())
    yield from controller_placement(sources.placement())
    groups: list[GroupSample] = []
    yield from _gathered(sources.groups(), groups)
    yield from _groups(groups)
    lags = (
        (_labels(group=lag.group, topic=lag.topic, partition=lag.partition), lag.lag)
        for lag in islice(sources.lags(), LAG_LINES_MAX)
    )
    yield from _family(_LAG, lags)


def reference() -> str:
    """A table of all metrics, in Markdown, for the documentation."""
    remote = (*REMOTE.values(), *TIER.values(), *TIERED_PARTITION.values())
    limits = (*GAUGES.values(), *NET_BY_REASON.values(), *STATS_BY_REASON.values())
    rows = sorted((*NET.values(), *STATS.values(), *PEERS.values(), *limits, *remote,
                   *DISKLESS.values(), ZONE_HITS, *_PLACEMENT, *CLUSTER, *_FAMILIES))
    lines = [f"| `{row.name}` | {row.kind} | {row.labels} | {row.about} |\n" for row in rows]
    return "| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n" + "".join(lines)


def _gathered(samples: Iterable[T], into: list[T]) -> Iterator[str]:
    """Collect all samples, with as many pauses as if they were lines."""
    for sample in samples:
        into.append(sample)
        if len(into) % PIECE_LINES_MAX == 0:
            yield ""


def _process(sources: Sources) -> str:
    usage = sources.usage()
    build = _labels(version=__version__, python=platform.python_version())
    return "".join(
        (
            *_family(_BUILD, [(build, 1)]),
            _single(_READY, int(sources.ready())),
            _single(_STEPPED_BACK, int(sources.stepped_back())),
            _single(_CPU, usage.cpu_seconds),
            _single(_RESIDENT, usage.resident_bytes),
            _single(_OPEN_FILES, usage.open_files),
            _single(_OPEN_FILES_MAX, usage.open_files_max),
            _single(_STARTED, sources.started_at),
        )
    )


def _scalars(
    numbers: NetStats | Stats | PeerStats | RemoteStats | TierTotals | DisklessTotals,
    families: Mapping[str, _Family],
) -> str:
    return "".join(_single(family, getattr(numbers, name)) for name, family in families.items())


def _by_reason(numbers: NetStats | Stats, families: Mapping[str, _Family]) -> str:
    """Counters with one label each."""
    return "".join(
        piece for name, family in families.items()
        for piece in _family(family, (
            (_labels(**{family.labels: reason}), count)
            for reason, count in sorted(getattr(numbers, name).items()))))


def _requests(stats: Stats, names: Mapping[int, str]) -> str:
    def name(api_key: int) -> str:
        return names.get(api_key, str(api_key))

    errors = (
        (_labels(api=name(api_key), error=_code_name(code)), count)
        for (api_key, code), count in sorted(stats.request_errors.items())
    )
    lines = [_head(_REQUESTS)]
    lines += [
        _histogram(_REQUESTS.name, histogram, f'api="{name(api_key)}",')
        for api_key, histogram in sorted(stats.requests.items())
    ]
    lines += _family(_REQUEST_ERRORS, errors)
    lines += [_head(_FLUSHES), _histogram(_FLUSHES.name, stats.flushes)]
    return "".join(lines)


def _partitions(partitions: Sequence[PartitionLog]) -> Iterator[str]:
    opened: list[tuple[str, PartitionLog]] = []
    failed: list[tuple[str, int]] = []
    for index, view in enumerate(partitions):
        name = view.topic_partition
        labels = _labels(topic=name.topic, partition=name.partition)
        if view.failure is None:
            if view.high_watermark >= 0:  # a diskless one may not have been used here yet
                opened.append((labels, view))
        else:
            failed.append((labels, 1))
        if index % PIECE_LINES_MAX == 0:
            yield ""  # a pause: labels take as long as lines
    yield _single(_PARTITIONS, len(partitions)) + _single(_FAILED, len(failed))
    yield from _family(_FAILED_PARTITION, failed)
    yield from _family(_LOG_SIZE, ((labels, log.size_bytes) for labels, log in opened))
    yield from _family(_LOG_START, ((labels, log.log_start_offset) for labels, log in opened))
    yield from _family(_LOG_END, ((labels, log.log_end_offset) for labels, log in opened))
    yield from _family(
        _HIGH_WATERMARK, ((labels, log.high_watermark) for labels, log in opened)
    )


def _chains(chains: Sequence[ChainSample]) -> Iterator[str]:
    """Metrics of chains; those of one node count only in the totals."""
    yield _single(_LEADING, sum(chain.status.is_leader for chain in chains))
    yield _single(_SHORT, sum(chain.status.is_under_replicated for chain in chains))
    yield _single(_HALTED, sum(chain.status.is_halted for chain in chains))
    shown = [(_labels(topic=chain.topic, partition=chain.partition), chain)
             for chain in chains if not chain.status.is_only_member]
    yield from _family(_ROLE, (
        (_labels(topic=chain.topic, partition=chain.partition, role=chain.status.role), 1)
        for _, chain in shown))
    yield from _family(_EPOCH, ((labels, chain.status.epoch) for labels, chain in shown))
    yield from _family(_CHAIN_LAG, ((labels, chain.status.lag) for labels, chain in shown))
    yield from _family(_LAG_AFTER, ((labels, chain.status.lag_after) for labels, chain in shown))
    yield from _family(
        _IN_FLIGHT, ((labels, chain.status.in_flight_size) for labels, chain in shown))


def _tiered(samples: Sequence[TierSample]) -> Iterator[str]:
    """Metrics of partitions that have a remote tier."""
    labelled = [(_labels(topic=each.topic, partition=each.partition), each) for each in samples]
    for name, family in TIERED_PARTITION.items():
        yield from _family(family, ((labels, getattr(each, name)) for labels, each in labelled))


def _groups(groups: Sequence[GroupSample]) -> Iterator[str]:
    states: dict[str, int] = {}
    for group in groups:
        states[group.state] = states.get(group.state, 0) + 1
    yield from _family(_GROUPS, ((_labels(state=state), states[state]) for state in sorted(states)))
    yield from _family(_MEMBERS, ((_labels(group=group.group), group.members) for group in groups))


def _code_name(code: int) -> str:
    try:
        return Code(code).name
    except ValueError:
        return str(code)

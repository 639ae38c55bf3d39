"""Names for a node's numbers: Prometheus' text format, version 0.0.4, piece by piece.

`exposition` is a generator of pieces of bounded size, so that whoever writes them to a socket can
let the loop turn in between: with 10,000 partitions a scrape is 3 MB of text and must not be felt
by a produce request.  That is why the text is written here and not by `prometheus-client`, which
needs 15 times as long, in one go, and 7 MiB of memory; its parser is the oracle of the tests.

Tables say what there is, those of metric_tables and `_FAMILIES`; `reference` makes the
documentation from them.  A name says its unit, and ends in `_total` if it only grows.

Not here: counting (stats), HTTP (http), what the operating system knows (runtime/process).
"""

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import Final, NamedTuple, Protocol, TypeVar

from quipu import __version__
from quipu.broker.metric_tables import (
    GAUGES,
    NET,
    NET_BY_REASON,
    PEERS,
    STATS,
    STATS_BY_REASON,
)
from quipu.broker.metric_tables import Family as _Family
from quipu.broker.stats import LATENCY_BOUNDS, Histogram, Stats
from quipu.model.errors import Code
from quipu.model.ids import TopicPartition
from quipu.runtime import process
from quipu.runtime.net_limits import NetStats
from quipu.runtime.peer_net import PeerStats
from quipu.runtime.process import Usage
from quipu.wire.messages import REQUESTS

__all__ = ["GroupSample", "LagSample", "Sources", "Stats", "exposition", "reference"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
PIECE_LINES_MAX: Final = 500  # about 40 KB, and about 0.3 ms of the loop
LAG_LINES_MAX: Final = 100_000  # clients decide how many offsets there are


T = TypeVar("T")


class LogView(Protocol):
    """What the metrics read of a log."""

    @property
    def size_bytes(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...


class PartitionView(Protocol):
    """What the metrics read of a partition."""

    @property
    def topic_partition(self) -> TopicPartition: ...
    @property
    def log(self) -> LogView: ...
    @property
    def failed(self) -> Exception | None: ...  # why it is offline, if it is
    @property
    def high_watermark(self) -> int: ...


class GroupSample(NamedTuple):
    """A consumer group at the moment of a scrape."""

    group: str
    state: str
    members: int


class LagSample(NamedTuple):
    """How many records a group has not consumed of a partition that it committed to."""

    group: str
    topic: str
    partition: int
    lag: int


class ChainSample(NamedTuple):
    """This node's part in the chain of one partition."""

    topic: str
    partition: int
    role: str
    epoch: int
    is_alone: bool  # no other node has a part in it
    is_leading: bool
    is_short: bool  # led here, and some member does not serve
    is_halted: bool
    lag: int  # records, of any type, that the node before has and this one has not
    lag_after: int  # that this one has and the next has not acknowledged
    in_flight_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where a scrape takes its numbers from; every call is made anew for every scrape."""

    stats: Stats
    net: NetStats
    usage: Callable[[], Usage] = process.usage
    started_at: float = field(default_factory=process.started_at)  # seconds since 1970 UTC
    api_names: Mapping[int, str] = field(
        default_factory=lambda: {
            key: request.__name__.removesuffix("Request") for key, request in REQUESTS.items()
        }
    )
    partitions: Callable[[], Sequence[PartitionView]] = tuple
    chains: Callable[[], Iterable[ChainSample]] = tuple
    groups: Callable[[], Iterable[GroupSample]] = tuple
    lags: Callable[[], Iterable[LagSample]] = tuple
    peers: Callable[[], PeerStats] = PeerStats
    ready: Callable[[], bool] = lambda: False
    stepped_back: Callable[[], bool] = lambda: False


_REQUESTS: Final = _Family(
    "quipu_request_seconds",
    "histogram",
    "From a whole request received to its answer handed to the socket; a fetch's wait counts.",
    "api",
)
_REQUEST_ERRORS: Final = _Family(
    "quipu_request_errors_total",
    "counter",
    "Requests, and batches of Produce, refused with one of Kafka's codes.",
    "api, error",
)
_FLUSHES: Final = _Family("quipu_flush_seconds", "histogram", "Time of one flush to disk.")
_READY: Final = _Family("quipu_ready", "gauge", "1 while `/health/ready` answers 200.")
_STEPPED_BACK: Final = _Family(
    "quipu_stepped_back", "gauge", "1 while others serve in this node's place: its disk failed."
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
    "quipu_chain_role", "gauge", "1 for what this node does in a chain.", "topic, partition, role"
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


def exposition(sources: Sources) -> Iterator[str]:
    """The metrics as text, in pieces of at most `PIECE_LINES_MAX` samples."""
    yield _process(sources)
    yield _scalars(sources.net, NET) + _scalars(sources.stats, STATS)
    yield _scalars(sources.peers(), PEERS) + _scalars(sources.stats, GAUGES)
    yield _by_reason(sources.net, NET_BY_REASON) + _by_reason(sources.stats, STATS_BY_REASON)
    yield _requests(sources.stats, sources.api_names)
    yield from _partitions(sources.partitions())
    chains: list[ChainSample] = []
    yield from _gathered(sources.chains(), chains)
    yield from _chains(chains)
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
    limits = (*GAUGES.values(), *NET_BY_REASON.values(), *STATS_BY_REASON.values())
    rows = sorted((*NET.values(), *STATS.values(), *PEERS.values(), *limits, *_FAMILIES))
    lines = [f"| `{row.name}` | {row.kind} | {row.labels} | {row.about} |\n" for row in rows]
    return "| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n" + "".join(lines)


def _gathered(samples: Iterable[T], into: list[T]) -> Iterator[str]:
    """Take all samples, and let the loop turn as often as if they were lines."""
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


def _scalars(numbers: NetStats | Stats | PeerStats, families: Mapping[str, _Family]) -> str:
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


def _partitions(partitions: Sequence[PartitionView]) -> Iterator[str]:
    opened: list[tuple[str, PartitionView, LogView]] = []
    failed: list[tuple[str, int]] = []
    for index, view in enumerate(partitions):
        name = view.topic_partition
        labels = _labels(topic=name.topic, partition=name.partition)
        if view.failed is None:
            opened.append((labels, view, view.log))
        else:
            failed.append((labels, 1))
        if index % PIECE_LINES_MAX == 0:
            yield ""  # labels take as long as lines
    yield _single(_PARTITIONS, len(partitions)) + _single(_FAILED, len(failed))
    yield from _family(_FAILED_PARTITION, failed)
    yield from _family(_LOG_SIZE, ((labels, log.size_bytes) for labels, _, log in opened))
    yield from _family(_LOG_START, ((labels, log.log_start_offset) for labels, _, log in opened))
    yield from _family(_LOG_END, ((labels, log.end_offset) for labels, _, log in opened))
    yield from _family(
        _HIGH_WATERMARK, ((labels, view.high_watermark) for labels, view, _ in opened)
    )


def _chains(chains: Sequence[ChainSample]) -> Iterator[str]:
    """Of chains of one there is nothing to tell but the totals."""
    yield _single(_LEADING, sum(chain.is_leading for chain in chains))
    yield _single(_SHORT, sum(chain.is_short for chain in chains))
    yield _single(_HALTED, sum(chain.is_halted for chain in chains))
    shown = [(_labels(topic=chain.topic, partition=chain.partition), chain)
             for chain in chains if not chain.is_alone]
    yield from _family(_ROLE, (
        (_labels(topic=chain.topic, partition=chain.partition, role=chain.role), 1)
        for _, chain in shown))
    yield from _family(_EPOCH, ((labels, chain.epoch) for labels, chain in shown))
    yield from _family(_CHAIN_LAG, ((labels, chain.lag) for labels, chain in shown))
    yield from _family(_LAG_AFTER, ((labels, chain.lag_after) for labels, chain in shown))
    yield from _family(_IN_FLIGHT, ((labels, chain.in_flight_size) for labels, chain in shown))


def _groups(groups: Sequence[GroupSample]) -> Iterator[str]:
    states: dict[str, int] = {}
    for group in groups:
        states[group.state] = states.get(group.state, 0) + 1
    yield from _family(_GROUPS, ((_labels(state=state), states[state]) for state in sorted(states)))
    yield from _family(_MEMBERS, ((_labels(group=group.group), group.members) for group in groups))


# -- the text format


def _head(family: _Family) -> str:
    return f"# HELP {family.name} {family.about}\n# TYPE {family.name} {family.kind}\n"


def _single(family: _Family, value: float) -> str:
    return f"{_head(family)}{family.name} {value}\n"


def _family(family: _Family, samples: Iterable[tuple[str, float]]) -> Iterator[str]:
    """One family with labelled samples, in pieces."""
    name = family.name
    lines = [_head(family)]
    for labels, value in samples:
        lines.append(f"{name}{labels} {value}\n")
        if len(lines) >= PIECE_LINES_MAX:
            yield "".join(lines)
            lines.clear()
    yield "".join(lines)


def _histogram(name: str, histogram: Histogram, label: str = "") -> str:
    """Buckets are cumulative in the text, each with those below it."""
    sums = list(accumulate(histogram.buckets))
    bounds = (*(str(bound) for bound in LATENCY_BOUNDS), "+Inf")
    lines = [
        f'{name}_bucket{{{label}le="{bound}"}} {count}\n'
        for bound, count in zip(bounds, sums, strict=True)
    ]
    labels = f"{{{label.rstrip(',')}}}" if label else ""
    lines.append(f"{name}_sum{labels} {histogram.seconds}\n")
    lines.append(f"{name}_count{labels} {sums[-1]}\n")
    return "".join(lines)


def _labels(**values: str | int) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in values.items()) + "}"


def _escaped(value: str | int) -> str:
    """A label's value; names of groups are the client's choice and may hold anything."""
    text = str(value)
    if text.isalnum():
        return text
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _code_name(code: int) -> str:
    try:
        return Code(code).name
    except ValueError:
        return str(code)

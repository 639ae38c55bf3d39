"""The metrics of managed placement, which the controller alone has, and of what a node knows of
diskless logs.

The names are those of Kafka's design of managed replication for diskless topics, with `_` for dots.

A cluster may have more partitions than a scrape should have lines: PARTITIONS_MAX are shown, those
that are not as they should be first, so that an alert misses none of them unless they are more.

Not here: where the numbers come from (placement_samples.py).
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from quipu.broker.observing.metric_tables import Family
from quipu.broker.observing.text_format import PIECE_LINES_MAX, labelled, labels_of, single

PARTITIONS_MAX: Final = 100_000


class PlacementTotals(NamedTuple):
    """Numbers of the whole cluster, as its controller knows them."""

    reassignment_backlog: int
    reassignment_moves: int
    rack_unavailable_threshold_ms: int
    auto_reconcile: int


class RackSample(NamedTuple):
    """A rack."""

    rack: str
    rack_state: int
    rack_degraded_since_ms: int


class PlacementSample(NamedTuple):
    """The placement of one partition."""

    topic: str
    partition: int
    rack_coverage: int
    placement_state: int
    placement_drift: int
    exceptions: int

    @property
    def is_right(self) -> bool:
        return self.rack_coverage == 100 and not (
            self.placement_state or self.placement_drift or self.exceptions)


class ControllerPlacement(NamedTuple):
    """All that the controller shows."""

    totals: PlacementTotals
    racks: Sequence[RackSample]
    factors: Sequence[tuple[str, int]]  # effective replication factor, by topic
    pages: Iterable[Sequence[PlacementSample]]  # small ones, so that others can run in between


class DisklessLagSample(NamedTuple):
    """What this node lacks of one diskless log."""

    topic: str
    partition: int
    coordinator_lag: int
    cache_build_lag: int


_PARTITION: Final = "topic, partition"

EFFECTIVE_RF: Final = Family(
    "kafka_controller_diskless_effective_rf", "gauge",
    "Replicas that each partition of a diskless topic should have: the number of racks that are "
    "not given up.", "topic")

CONTROLLER_TOTALS: Final[dict[str, Family]] = {  # by attribute of PlacementTotals
    "reassignment_backlog": Family(
        "kafka_controller_diskless_reassignment_backlog", "gauge",
        "Diskless partitions that are known not to be at their target."),
    "reassignment_moves": Family(
        "kafka_controller_diskless_reassignment_moves_total", "counter",
        "Replicas of diskless partitions that this controller has added or removed."),
    "rack_unavailable_threshold_ms": Family(
        "kafka_controller_diskless_rack_unavailable_threshold_ms", "gauge",
        "Milliseconds after which a rack without a broker that is up is given up "
        "(`diskless.managed.rf.rack.unavailable.threshold.ms`)."),
    "auto_reconcile": Family(
        "kafka_controller_diskless_auto_reconcile", "gauge",
        "1 if the controller brings partitions to their target, 0 if it only counts them "
        "(`diskless.managed.rf.auto.reconcile`)."),
}

CONTROLLER_RACK: Final[dict[str, Family]] = {  # by attribute of RackSample
    "rack_state": Family(
        "kafka_controller_diskless_rack_state", "gauge",
        "0 HEALTHY, 1 DEGRADED, 2 UNAVAILABLE.", "rack"),
    "rack_degraded_since_ms": Family(
        "kafka_controller_diskless_rack_degraded_since_ms", "gauge",
        "When the last broker of a rack went down, in milliseconds since 1970 UTC; 0 while one is "
        "up.", "rack"),
}

CONTROLLER_PLACEMENT: Final[dict[str, Family]] = {  # by attribute of PlacementSample
    "rack_coverage": Family(
        "kafka_controller_diskless_rack_coverage", "gauge",
        "Percent of the target racks where a replica of the partition is up; as of the other "
        "metrics of placements, 100,000 partitions at most.", _PARTITION),
    "placement_state": Family(
        "kafka_controller_diskless_placement_state", "gauge",
        "0 steady, 1 reconciling, 2 frozen.", _PARTITION),
    "placement_drift": Family(
        "kafka_controller_diskless_placement_drift", "gauge",
        "1 if the replicas differ from one in each rack, as far as brokers are up.", _PARTITION),
    "exceptions": Family(
        "kafka_controller_diskless_exceptions", "gauge",
        "How many exceptions the placement has: 1 while some target rack has no broker that is up "
        "(missingRackCapacity).", _PARTITION),
}

DISKLESS_LAG: Final[dict[str, Family]] = {  # by attribute of DisklessLagSample
    "coordinator_lag": Family(
        "kafka_broker_diskless_coordinator_lag", "gauge",
        "Offsets that this node had not heard of when the control plane last told it the high "
        "watermark; 0 after a notification that is up to date, or a minute.", _PARTITION),
    "cache_build_lag": Family(
        "kafka_broker_diskless_cache_build_lag", "gauge",
        "Offsets from the newest records that this node's cache holds to the high watermark; all "
        "that are in objects, if it holds none.", _PARTITION),
}


def controller_placement(placements: Iterable[ControllerPlacement]) -> Iterator[str]:
    """The controller's metrics; nothing if this node is not the controller."""
    for placement in placements:
        yield from _controller_placement(placement)


def _controller_placement(placement: ControllerPlacement) -> Iterator[str]:
    for name, family in CONTROLLER_TOTALS.items():
        yield single(family, getattr(placement.totals, name))
    racks = [(labels_of(rack=each.rack), each) for each in placement.racks]
    for name, family in CONTROLLER_RACK.items():
        yield from labelled(family, ((labels, getattr(each, name)) for labels, each in racks))
    yield from labelled(
        EFFECTIVE_RF, ((labels_of(topic=topic), factor) for topic, factor in placement.factors))
    shown: list[tuple[str, PlacementSample]] = []
    for page in placement.pages:
        shown += [(labels_of(topic=each.topic, partition=each.partition), each) for each in page]
        yield ""
    for name, family in CONTROLLER_PLACEMENT.items():
        yield from labelled(family, ((labels, getattr(each, name)) for labels, each in shown))


def diskless_lags(samples: Iterable[DisklessLagSample]) -> Iterator[str]:
    """What this node lacks of diskless logs."""
    shown: list[tuple[str, DisklessLagSample]] = []
    for each in islice(samples, PARTITIONS_MAX):
        shown.append((labels_of(topic=each.topic, partition=each.partition), each))
        if len(shown) % PIECE_LINES_MAX == 0:
            yield ""
    for name, family in DISKLESS_LAG.items():
        yield from labelled(family, ((labels, getattr(each, name)) for labels, each in shown))

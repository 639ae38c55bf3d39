"""Reads racks and placements of diskless partitions, and what this node knows of their logs, for a
scrape of the metrics.

Other tasks run between the pieces of a scrape, so a topic may be deleted or grow meanwhile: each is
shown as it was when the scrape came to it, compared with the racks at the scrape's begin.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from quipu.broker.observing.placement_metrics import (
    PARTITIONS_MAX,
    ControllerPlacement,
    DisklessLagSample,
    PlacementSample,
    PlacementTotals,
    RackSample,
)
from quipu.broker.serving.context import Broker
from quipu.broker.serving.placements import Placements
from quipu.controller.topic_state import Topic

PAGE_PARTITIONS: Final = 500  # looked at without a pause


def of_controller(broker: Broker) -> list[ControllerPlacement]:
    """What the controller knows of placements; nothing if this node is not the controller."""
    reconciliation = broker.cluster.reconciliation
    if not reconciliation.is_active:
        return []
    placements, topics = Placements(broker), broker.cluster.state.diskless_topics()
    return [ControllerPlacement(
        totals=PlacementTotals(
            reassignment_backlog=reconciliation.backlog, reassignment_moves=reconciliation.moves,
            rack_unavailable_threshold_ms=placements.threshold_ms,
            auto_reconcile=int(placements.auto_reconcile)),
        racks=[RackSample(rack.name, rack.state, rack.degraded_since_ms)
               for rack in placements.racks.values()],
        factors=[(topic.name, placements.effective_factor) for topic in topics],
        pages=placement_pages(placements, topics))]


def placement_pages(
    placements: Placements, topics: Sequence[Topic], partitions_max: int = PARTITIONS_MAX
) -> Iterator[list[PlacementSample]]:
    """The partitions of `topics`, those that are not as they should be first."""
    right: list[PlacementSample] = []
    left = partitions_max
    for topic in topics:
        for start in range(0, len(topic.partitions), PAGE_PARTITIONS):
            page = list(_samples(placements, topic, start))
            wrong = [each for each in page if not each.is_right][:left]
            left -= len(wrong)
            if len(right) < partitions_max:
                right += [each for each in page if each.is_right]
            yield wrong
    right = right[:left]
    for start in range(0, len(right), PAGE_PARTITIONS):
        yield right[start : start + PAGE_PARTITIONS]


def _samples(placements: Placements, topic: Topic, start: int) -> Iterator[PlacementSample]:
    end = min(start + PAGE_PARTITIONS, len(topic.partitions))
    for index in range(start, end):
        found = placements.of(topic.partitions[index])
        yield PlacementSample(
            topic.name, index, found.rack_coverage, found.state, int(found.is_drifted),
            len(found.exceptions))


def diskless_lags(broker: Broker) -> Iterator[DisklessLagSample]:
    """What this node lacks of the diskless logs that it has used since its start."""
    diskless = broker.diskless
    if diskless is None:
        return
    for partition in diskless.partitions.all():
        lags = diskless.reader.lags(partition.key)
        if lags is not None:
            yield DisklessLagSample(*partition.topic_partition, *lags)

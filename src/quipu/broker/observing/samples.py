"""Reads chains, groups, lags and tiers from the parts of a broker, for a scrape of the metrics.

Other tasks run between the pieces of a scrape, so everything here iterates over copies: groups and
offsets may change meanwhile.
"""

from collections.abc import Iterator
from typing import Final

from quipu.broker.diskless.opening import Diskless
from quipu.broker.observing.diskless_metrics import DisklessTotals, ZoneSample
from quipu.broker.observing.metrics import (
    ChainSample,
    GroupSample,
    LagSample,
    TierSample,
    TierTotals,
)
from quipu.broker.serving.context import Broker
from quipu.broker.tiering.led_partition import LedPartition
from quipu.broker.tiering.opening import Tiering
from quipu.model.errors import QuipuError

LAG_SEGMENTS_MAX: Final = 1000  # segments of a partition that are counted as not copied


def chain_samples(broker: Broker) -> Iterator[ChainSample]:
    """The role and lag of this node in the chain of each of its partitions."""
    for partition in broker.partitions.all():
        status = partition.replication_status()
        if status is not None:
            yield ChainSample(*partition.topic_partition, status)


def group_samples(broker: Broker) -> Iterator[GroupSample]:
    """Every group with its state and size."""
    for group in broker.groups.all():
        yield GroupSample(group.group_id, group.state.value, len(group.members))


def lag_samples(broker: Broker) -> Iterator[LagSample]:
    """Every committed offset's distance from the high watermark.

    Records that retention has removed are not counted.
    """
    topics = broker.cluster.state.topics_by_id
    for group_id, entry in broker.groups.entries():
        for (_, index), committed in list(entry.offsets.items()):
            topic = topics.get(committed.topic_id)
            partition = broker.partitions.find(topic.name, index) if topic is not None else None
            if topic is None or partition is None or partition.failure is not None:
                continue
            position = max(committed.offset, partition.log_start_offset)
            lag = max(partition.high_watermark - position, 0)
            yield LagSample(group_id, topic.name, index, lag)


def tier_totals(tiering: Tiering | None) -> TierTotals:
    """Reads of the remote tier, and their cache; zeros if there is none."""
    if tiering is None:
        return TierTotals()
    cache, counters = tiering.cache, tiering.cache.counters
    return TierTotals(
        pending_reads=tiering.reads.pending, cache_bytes=cache.size,
        cache_hits=counters.hits + counters.shared, cache_misses=counters.misses,
        cache_prefetches=counters.prefetches, cache_loaded_bytes=counters.loaded_bytes,
        cache_evictions=counters.evictions, cache_errors=counters.errors)


def tier_samples(tiering: Tiering | None) -> Iterator[TierSample]:
    """The remote tier of each partition that this node leads."""
    for led in [] if tiering is None else tiering.log.led():
        try:
            yield _tier_sample(led)
        except QuipuError:  # the log has failed, and is shown as failed
            continue


def diskless_totals(diskless: Diskless | None) -> DisklessTotals:
    """What was written to and read from diskless topics; zeros if there are none."""
    if diskless is None:
        return DisklessTotals()
    writer, reader = diskless.writer.stats, diskless.reader.stats
    cleaning = diskless.cleaning_stats
    return DisklessTotals(
        buffered_bytes=writer.buffered_now, uploads=writer.uploads_now, batches=writer.batches,
        batch_bytes=writer.batch_bytes, puts=writer.puts, put_bytes=writer.put_bytes,
        put_retries=writer.put_retries, put_seconds=writer.uploads.seconds,
        receipt_objects=writer.receipt_objects,
        commits=writer.commits, commit_retries=writer.commit_retries,
        commit_seconds=writer.commit_waits.seconds, flushes=writer.flushes.count,
        flush_seconds=writer.flushes.seconds, failed_batches=writer.failed_batches,
        refused_batches=writer.refused_batches, duplicate_batches=writer.duplicate_batches,
        reads=reader.reads, read_bytes=reader.read_bytes, read_errors=reader.errors,
        cache_hits=reader.hits, cache_bytes=reader.cached_now, cache_evictions=reader.evictions,
        gets=reader.gets, get_bytes=reader.get_bytes, get_retries=reader.get_retries,
        finds=reader.finds, corrupt=reader.corrupt, missing=reader.missing,
        reachable=int(diskless.is_reachable), objects_deleted=cleaning.objects_deleted,
        orphans_deleted=cleaning.orphans_deleted, objects_rewritten=cleaning.objects_rewritten,
        rewritten_bytes=cleaning.rewritten_bytes, cleaning_failures=cleaning.failures,
        foreign_objects=cleaning.foreign_objects)


def zone_samples(broker: Broker) -> Iterator[ZoneSample]:
    """How often clients with a zone were shown replicas in it, by diskless topic."""
    for topic, hits in broker.cluster.views.hits(broker.cluster.state):
        yield ZoneSample(topic, hits.ratio)


def _tier_sample(led: LedPartition) -> TierSample:
    waiting = led.log.tier.segments(LAG_SEGMENTS_MAX)
    return TierSample(
        *led.log.topic_partition, remote_bytes=led.remote_bytes, metadata_count=led.metadata_count,
        copy_lag_bytes=sum(segment.size for segment in waiting), copy_lag_segments=len(waiting),
        delete_lag_bytes=led.delete_lag[0], delete_lag_segments=led.delete_lag[1])

"""Makes the node's cleaner of diskless topics from its settings and the cluster's metadata.

Not here: what the cleaner does, and why that is safe (quipu.diskless.cleaning).
"""

from collections.abc import Callable, Iterable

from quipu.broker.diskless.partition import DisklessPartition
from quipu.diskless.cleaning.limits import CleaningLimits
from quipu.diskless.control_plane.interface import RetentionRule
from quipu.diskless.writing.limits import WriterLimits
from quipu.model.settings import BrokerSettings


def cleaning_limits(
    settings: BrokerSettings, *, coordinates_ms: int, writer: WriterLimits
) -> CleaningLimits:
    """The limits that the settings mean; raises `BadCleaningLimits` if they contradict."""
    limits = CleaningLimits(
        object_grace_ms=settings.diskless_object_grace_ms, coordinates_ms=coordinates_ms,
        cleaner_interval_ms=settings.diskless_cleaner_interval_ms,
        retention_interval_ms=settings.diskless_retention_interval_ms,
        producer_expiry_ms=settings.producer_id_expiration_ms,
        orphan_grace_ms=settings.diskless_orphan_grace_ms,
        give_up_ms=writer.upload_ms_max + writer.commit_ms_max,
        is_rewriting=settings.diskless_rewrite_enable,
        rewrite_age_ms=settings.diskless_rewrite_age_ms,
        rewrite_small_bytes=settings.diskless_rewrite_small_bytes,
        rewrite_live_share=settings.diskless_rewrite_live_percent / 100,
        rewrite_object_bytes=settings.diskless_rewrite_object_bytes,
        rewrite_pass_bytes=settings.diskless_rewrite_pass_bytes)
    limits.check()
    return limits


def retention_rules(
    partitions: Callable[[], Iterable[DisklessPartition]]
) -> Callable[[], list[RetentionRule]]:
    """The rules of all logs that the control plane knows, but for those with a remote tier."""
    def rules() -> list[RetentionRule]:
        return [
            RetentionRule(each.key, each.settings.retention_ms, each.settings.retention_bytes)
            for each in partitions()
            if each.is_known and not each.settings.remote_storage_enable]

    return rules

"""Which settings of a topic go together with tiered storage: Kafka's rules, and why each holds.

A rule looks at the settings that a topic would have, inherited ones included, and at those that it
has now.  Values that are stored already are not checked again: a broker's default may have changed
since, and then the stricter of two limits holds (`local_limit`).

Not here: the value that one setting alone may have (topic_settings).
"""

from typing import Final

from quipu.model.errors import SettingError
from quipu.model.remote_settings import AS_RETENTION
from quipu.model.topic_settings import TopicSettings

NO_LIMIT: Final = -1
# Settings of a topic that the rules look at.
TIERING: Final = frozenset({
    "cleanup.policy", "local.retention.bytes", "local.retention.ms", "remote.log.copy.disable",
    "remote.log.delete.on.disable", "remote.storage.enable", "retention.bytes", "retention.ms",
})


def check_tiering(
    new: TopicSettings, old: TopicSettings | None = None, *, is_available: bool
) -> None:
    """Raise `SettingError` if a topic may not have the settings `new` after `old`.

    `old` is None for a new topic.  `is_available`: remote.log.storage.system.enable.
    """
    was_enabled = old is not None and old.remote_storage_enable
    if was_enabled and not new.remote_storage_enable and not new.remote_log_delete_on_disable:
        raise SettingError(
            "remote.storage.enable=false deletes what only the remote tier has of the topic: set "
            "remote.log.delete.on.disable=true in the same request to confirm that, or set "
            "remote.log.copy.disable=true to keep it readable until it expires")
    if not new.remote_storage_enable:
        return
    if not is_available and not was_enabled:
        raise SettingError(
            "remote.storage.enable=true needs a remote tier: set "
            "remote.log.storage.system.enable=true on the brokers and restart them")
    if "compact" in new.cleanup_policy:
        raise SettingError(
            f"remote.storage.enable=true and cleanup.policy={','.join(new.cleanup_policy)}: a "
            "compacted topic cannot have a remote tier; set cleanup.policy=delete")
    for unit, local, total in (
            ("ms", new.local_retention_ms, new.retention_ms),
            ("bytes", new.local_retention_bytes, new.retention_bytes)):
        _check_local(unit, local, total, copies=not new.remote_log_copy_disable)


def _check_local(unit: str, local: int, total: int, *, copies: bool) -> None:
    if local == AS_RETENTION:
        return
    if not copies and local != total:
        raise SettingError(
            f"remote.log.copy.disable=true and local.retention.{unit}={local}: local segments are "
            f"the only copy then; set local.retention.{unit} to -2, or to {total} as "
            f"retention.{unit}")
    if total == NO_LIMIT:
        return
    if local == NO_LIMIT:
        raise SettingError(
            f"local.retention.{unit}=-1 is more than retention.{unit}={total}: set it to -2, or "
            f"to at most {total}")
    if local > total:
        raise SettingError(
            f"local.retention.{unit}={local} is more than retention.{unit}={total}: set it to "
            f"at most {total}, or to -2 for the same")


def local_limit(local: int, total: int, *, copies: bool) -> int:
    """The limit of local segments: `local`, or `total` if that is stricter; -1 for none.

    Without copies it is `total`: local segments are the only copy.
    """
    if local == AS_RETENTION or not copies:
        return total
    if total == NO_LIMIT:
        return local
    return total if local == NO_LIMIT else min(local, total)

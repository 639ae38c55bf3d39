"""Which topics may be diskless, and why others may not.

A topic is made diskless when it is created, or by a migration, as its records have to move from
one place to another (controller/migration.py); then it stays diskless.

Not here: the value that one setting alone may have (topic_settings), which replicas such a topic
has (controller/diskless.py).
"""

from typing import Final

from quipu.model.broker_settings import BrokerSettings
from quipu.model.errors import SettingError
from quipu.model.topic_settings import TopicSettings

ENABLE: Final = "diskless.enable"
# Settings of a topic that the rules look at.
DISKLESS: Final = frozenset({ENABLE, "cleanup.policy"})
SQLITE: Final = "sqlite:"


def why_unavailable(settings: BrokerSettings) -> str | None:
    """Why brokers with these settings cannot have diskless topics; None if they can."""
    if not settings.diskless_storage_system_enable:
        return ("it needs an object store and a control plane: set "
                "diskless.storage.system.enable=true on the brokers and restart them")
    if settings.peer_listener is None:
        return None
    url = settings.diskless_control_plane_url
    if url is None or url.startswith(SQLITE):
        return ("the nodes of a cluster need a control plane that all of them can reach, and "
                "SQLite serves one node alone: set diskless.control.plane.url to "
                "postgresql://USER:PASSWORD@HOST/DATABASE on all of them and restart them")
    if settings.diskless_storage_url is None:
        return ("the nodes of a cluster need an object store that all of them can reach: set "
                "diskless.storage.url, for example to s3://BUCKET/PREFIX, on all of them and "
                "restart them")
    return None


def check_diskless(
    new: TopicSettings, old: TopicSettings | None = None, *, unavailable: str | None
) -> None:
    """Raise `SettingError` if a topic may not have the settings `new` after `old`.

    `old` is None for a new topic.  `unavailable`: the result of `why_unavailable`.
    """
    if old is not None and new.diskless_enable != old.diskless_enable:
        raise SettingError(
            "diskless.enable can be set only when a topic is created, and this one is diskless, "
            "which it stays: create another topic, and copy the records" if old.diskless_enable
            else "diskless.enable can be set only when a topic is created, as records have to move "
            "to object storage: `quipu topic migrate NAME --to diskless` does that for this topic")
    if not new.diskless_enable:
        return
    if old is None and unavailable is not None:
        raise SettingError(f"diskless.enable=true: {unavailable}")
    if "compact" in new.cleanup_policy:
        raise SettingError(
            f"diskless.enable=true and cleanup.policy={','.join(new.cleanup_policy)}: a diskless "
            "topic cannot be compacted; set cleanup.policy=delete")

"""Logs that a start finds on their way out, and removes.

    <a log>.<n>.deleted    was deleted, and its files were being removed
    <a log>                of a topic that was deleted, whose many logs were being removed one after
                           the other; the node log names such topics (node_log.py)

What belongs to no topic for any other reason is left alone: the metadata may be what is missing.
"""

import logging
from collections.abc import Sequence
from uuid import UUID

from quipu.model.errors import QuipuError
from quipu.runtime.disks.disk import Disk
from quipu.storage.directory.directory_names import DELETED_SUFFIX, is_log, topic_of
from quipu.storage.directory.node_log import NodeLog

_log = logging.getLogger(__name__)


def remove_marked(disk: Disk, path: str, entries: Sequence[str]) -> None:
    """Remove the logs in `path` that are marked as deleted."""
    for name in entries:
        if name.endswith(DELETED_SUFFIX):
            try:
                disk.remove_tree(f"{path}/{name}")
            except QuipuError as error:
                log_failure(error)


def finish(disk: Disk, path: str, node_log: NodeLog, entries: Sequence[str]) -> set[str]:
    """Remove what is left of topics that were being removed; returns the directories."""
    removed: set[str] = set()
    for topic_id in list(node_log.removing):
        left = [name for name in entries
                if is_log(name) and _topic_of(name, node_log) == topic_id]
        try:
            for name in left:
                disk.remove_tree(f"{path}/{name}")
                removed.add(name)
            disk.sync_directory(path)  # what is forgotten must not come back
            node_log.remember(dict.fromkeys(
                name for name, known in node_log.logs.items() if known.topic_id == topic_id))
            node_log.end_removal(topic_id)
        except QuipuError as error:
            log_failure(error)
        else:
            _log.info("what was left of a deleted topic is removed", extra={
                "topic_id": str(topic_id), "logs": len(left)})
    return removed


def _topic_of(name: str, node_log: NodeLog) -> UUID | None:
    """By the directory's name, or as the node remembers it if that is an older one."""
    found = topic_of(name)
    known = node_log.logs.get(name)
    return known.topic_id if found is None and known is not None else found


def log_failure(error: QuipuError | None) -> None:
    """Log that a deleted log stays for now."""
    if error is not None:
        _log.warning("a deleted log could not be removed, the next start tries again: %s", error)

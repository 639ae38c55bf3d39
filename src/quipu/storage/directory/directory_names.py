"""What the directories in a data directory are called, and which of them are logs.

    orders-0.6f1c…(32 hex digits)   the log of partition 0 of the topic with this id; in front of
                                    the id what is readable of the topic's name, PREFIX_SIZE_MAX
                                    characters of it at most
    orders-0                        the same, made by version 0.3.0 or older; opened as it is
    __cluster-0, __node-0           the node's own logs
    <any of these>.<n>.deleted      on its way out; removed by the next start at the latest
    <any of these>.<n>.damaged      kept for people, never used; `.stray` in older versions

Invariants
    storage.Y1  a name is made for every topic name whatever, and is NAME_SIZE_MAX bytes at most,
        also with a mark behind it: the limits of the file system are none for names of topics
    storage.Y2  two logs have two names: a topic that is created again has another id, and so
        another directory, than the one before it
    storage.Y3  no name means two things: an id is 32 digits after a dot, older names end in a dash
        and digits, marks end in their suffix

Not here: which names topics may have (model/topics.py).  The name of a log, whole, is in the
checkpoint at the start of each of its segments.
"""

import re
from typing import Final
from uuid import UUID

from quipu.model.topics import RESERVED

NAME_SIZE_MAX: Final = 255  # bytes of a file's name, for most file systems
PREFIX_SIZE_MAX: Final = 100
KEPT_SIZE_MAX: Final = 180  # of a name that gets a mark behind it
DELETED_SUFFIX: Final = ".deleted"
DAMAGED_SUFFIX: Final = ".damaged"
STRAY_SUFFIX: Final = ".stray"
OWN_LOGS: Final = frozenset(f"{name}-0" for name in RESERVED)

_UNREADABLE: Final = re.compile(r"[^a-zA-Z0-9._-]")
_BY_ID: Final = re.compile(r"[a-zA-Z0-9._-]+-[0-9]+\.[0-9a-f]{32}")
_BY_NAME: Final = re.compile(r"[a-zA-Z0-9_-][a-zA-Z0-9._-]*-[0-9]+")
_MARKED: Final = (DELETED_SUFFIX, DAMAGED_SUFFIX, STRAY_SUFFIX)


def directory_name(log_name: str, topic_id: UUID) -> str:
    """The directory of the log called `log_name`, which is TOPIC-PARTITION.

    Any name will do (storage.Y1), and no other log has the same (storage.Y2).
    """
    if log_name in OWN_LOGS:
        return log_name
    topic, _, partition = log_name.rpartition("-")
    prefix = _UNREADABLE.sub("_", topic[:PREFIX_SIZE_MAX])
    if not prefix or prefix.startswith("."):
        prefix = "_" + prefix[1:]  # a hidden directory is one that people overlook
    number = partition if partition.isascii() and partition.isdecimal() else "0"
    name = f"{prefix}-{number[:10]}.{topic_id.hex}"
    assert len(name) <= KEPT_SIZE_MAX, name  # storage.Y1: room for a mark
    assert not name.endswith(_MARKED), name  # storage.Y3
    return name


def older_name(log_name: str) -> str | None:
    """What version 0.3.0 called the directory of this log; None if it could not have one."""
    if (_BY_NAME.fullmatch(log_name) is None or log_name in OWN_LOGS
            or len(log_name) > NAME_SIZE_MAX):
        return None
    return log_name


def is_log(name: str) -> bool:
    """Is this the directory of a topic's log, one in use or one that may be?"""
    if name in OWN_LOGS or is_marked(name):
        return False
    return _BY_ID.fullmatch(name) is not None or _BY_NAME.fullmatch(name) is not None


def is_older(name: str) -> bool:
    """Is this the directory of a topic's log, as version 0.3.0 or older made it?"""
    return is_log(name) and _BY_ID.fullmatch(name) is None


def topic_of(name: str) -> UUID | None:
    """The id of the topic whose log is in a directory; None if its name has none (storage.Y3)."""
    return UUID(hex=name[-32:]) if _BY_ID.fullmatch(name) is not None else None


def is_marked(name: str) -> bool:
    """Is it no longer used, whatever it was?"""
    return name.endswith(_MARKED)


def marked(name: str, number: str, suffix: str) -> str:
    """What a directory is called that is no longer used (storage.Y1)."""
    assert suffix in _MARKED, suffix
    return f"{name[:KEPT_SIZE_MAX]}.{number}{suffix}"

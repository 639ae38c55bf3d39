"""Topic names: which are legal, which clash, and which belong to the cluster itself.

The rules are Kafka's.  Two names that differ only in `.` and `_` clash, because metric names
replace `.` by `_`.

Not here: names of the directories of their logs (storage/directory/directory_names.py).
"""

import re
from typing import Final

from quipu.model.errors import Code, RequestError

NAME_LENGTH_MAX: Final = 249  # Kafka's limit; directory names have their own
PARTITION_COUNT_MAX: Final = 99_999

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
REMOTE_LOG_METADATA: Final = "__remote_log_metadata"
INTERNAL: Final = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, REMOTE_LOG_METADATA})
# Those whose state machines replace old segments by snapshots, so that nothing is to be compacted.
KEPT_BY_SNAPSHOTS: Final = frozenset({REMOTE_LOG_METADATA})

# A node keeps logs of its own beside those of topics; no topic may have the name of one.
RESERVED: Final = frozenset({"__cluster", "__node"})

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


class InvalidTopicName(RequestError):
    """A topic name that is not allowed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=Code.INVALID_TOPIC_EXCEPTION)


def is_internal(name: str) -> bool:
    """Whether the cluster itself keeps state in this topic."""
    return name in INTERNAL


def check_topic_name(name: str) -> None:
    """Raise `InvalidTopicName` unless a topic may be called `name`."""
    if not name:
        raise InvalidTopicName("a topic name must not be empty")
    if name in {".", ".."}:
        raise InvalidTopicName(f"a topic must not be called {name!r}")
    if len(name) > NAME_LENGTH_MAX:
        raise InvalidTopicName(
            f"topic name {name[:20]!r}... has {len(name)} characters; "
            f"at most {NAME_LENGTH_MAX} are allowed")
    if _LEGAL.fullmatch(name) is None:
        raise InvalidTopicName(
            f"topic name {name!r} may hold only ASCII letters, digits, '.', '_' and '-'")
    if name in RESERVED:
        raise InvalidTopicName(f"{name!r} is reserved for a log that each node keeps for itself")


def clash_key(name: str) -> str:
    """The key that two names share if they clash: they differ only in '.' and '_'."""
    return name.replace(".", "_")

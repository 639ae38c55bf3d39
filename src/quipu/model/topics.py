"""Topic names: which are legal, which clash, and which are the cluster's own.

The rules are Kafka's, so that a name that is good here is good there.  Two names that differ only
in `.` against `_` clash because metric names turn one into the other.

Not here: what the directories of their logs are called (storage/directory_names.py).
"""

import re
from typing import Final

from quipu.model.errors import Code, RequestError

NAME_LENGTH_MAX: Final = 249  # Kafka's; what is on disk has names of its own
PARTITION_COUNT_MAX: Final = 99_999

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
INTERNAL: Final = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE})

# Logs that a node keeps for itself lie beside the topics' logs and must not be mistaken for one.
RESERVED: Final = frozenset({"__cluster", "__node"})

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


class InvalidTopicName(RequestError):
    """A name that no topic may have."""

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
    """Names with the same key clash: they differ only in '.' and '_'."""
    return name.replace(".", "_")

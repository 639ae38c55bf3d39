"""The cluster's own topics: what clients may do to them.

They hold state that is nowhere else: the groups and their offsets.  So clients may read them, and
operators may move them; clients cannot write to them, nor create, extend, truncate or delete them,
and no setting, of the topic or inherited from a broker, makes them lose records.

Here are the rules for what the controller decides; Produce and DeleteRecords are refused where
they arrive (broker/partition, handlers/k21_delete_records), by `refuse` as well.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from quipu.controller.topic_state import Topic
from quipu.model.errors import Code, RequestError
from quipu.model.topics import is_internal

# What holds for them whatever is configured: nothing is deleted by age or size.  Segments are
# small: the newest is not compacted, and whoever begins to lead a partition reads all of it.
FIXED: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact", "retention.ms": "-1", "retention.bytes": "-1",
    "segment.bytes": str(8 << 20)}
# What may be configured: how many nodes must have a record before it counts, and how fast it moves.
CHANGEABLE: Final = frozenset({
    "follower.replication.throttled.replicas", "leader.replication.throttled.replicas",
    "min.insync.replicas"})


def refuse(name: str, what: str) -> None:
    """Raise if `name` is one of the cluster's own topics, and so `what` cannot be done to it."""
    if is_internal(name):
        raise RequestError(f"{name} is the cluster's own topic; it cannot be {what}",
                           code=Code.INVALID_TOPIC_EXCEPTION)


def check_changes(name: str, settings: Iterable[str]) -> None:
    """Raise if these settings of the topic `name` must stay as they are."""
    fixed = sorted(set(settings) - CHANGEABLE)
    if fixed and is_internal(name):
        raise RequestError(
            f"{name} is the cluster's own topic; of its settings only "
            f"{', '.join(sorted(CHANGEABLE))} can be changed, not {', '.join(fixed)}",
            code=Code.INVALID_TOPIC_EXCEPTION)


def settings_of(topic: Topic) -> Mapping[str, str]:
    """The settings that a topic itself has; those of the cluster's own are fixed."""
    return {**topic.configs, **FIXED} if topic.is_internal else topic.configs

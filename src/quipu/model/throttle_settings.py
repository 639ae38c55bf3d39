"""The settings that limit the traffic of replicas which catch up, with Kafka's names and meanings.

A topic names its throttled replicas, and a broker the bytes per second that it sends to them, as
the node before them, and receives as one of them.  `BrokerSettings` inherits the broker's part; the
topic's part is in topic_settings.

Not here: the limits at work (broker/replication/throttling.py).
"""

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from quipu.model.ids import NodeId
from quipu.model.settings_types import LONG_MAX, SettingType, ValueRule, int64

ALL: Final = "*"
THROTTLED_SIZE_MAX: Final = 256 << 10  # characters: ten thousand partitions of three replicas
_REPLICA: Final = re.compile(r"([0-9]{1,9}):([0-9]{1,10})")


def _parse(value: str) -> tuple[str, ...]:
    words = [word.strip() for word in value.split(",")]
    if words == [ALL]:
        return (ALL,)
    found: dict[str, None] = {}
    for word in words:
        if word:
            match = _REPLICA.fullmatch(word)
            if match is None:
                raise ValueError
            found[f"{int(match[1])}:{int(match[2])}"] = None
    return tuple(found)


THROTTLED_REPLICAS: Final = ValueRule(
    SettingType.LIST, _parse,
    "* or a comma list of replicas as PARTITION:BROKER, such as 0:1,0:2")
NO_REPLICAS: tuple[str, ...] = ()


class ThrottledReplicas(NamedTuple):
    """The replicas of one topic whose traffic is limited while they catch up."""

    leaders: frozenset[str] = frozenset()  # that send: leader.replication.throttled.replicas
    followers: frozenset[str] = frozenset()  # that receive: follower.replication.throttled.replicas

    def sends_limited(self, partition: int, node_id: NodeId) -> bool:
        """Whether `node_id` limits what it sends of `partition`."""
        return _includes(self.leaders, partition, node_id)

    def receives_limited(self, partition: int, node_id: NodeId) -> bool:
        """Whether `node_id` limits what it receives of `partition`."""
        return _includes(self.followers, partition, node_id)


NOT_THROTTLED: Final = ThrottledReplicas()


def _includes(replicas: frozenset[str], partition: int, node_id: NodeId) -> bool:
    return bool(replicas) and (ALL in replicas or f"{partition}:{node_id}" in replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleSettings:
    """The bytes per second of replicas that catch up."""

    leader_replication_throttled_rate: int = int64(
        LONG_MAX,
        "Bytes per second that this node sends to replicas that catch up, of the partitions that "
        "a topic's leader.replication.throttled.replicas names for it; 0: none. Replicas that are "
        "in sync are not limited.", dynamic=True, low=0, high=LONG_MAX)
    follower_replication_throttled_rate: int = int64(
        LONG_MAX,
        "Bytes per second that this node receives while it catches up, of the partitions that a "
        "topic's follower.replication.throttled.replicas names for it; 0: none. Partitions in "
        "which it is in sync are not limited.", dynamic=True, low=0, high=LONG_MAX)
    replica_alter_log_dirs_io_max_bytes_per_second: int = int64(
        LONG_MAX, "Bytes per second of logs that are moved to another directory of the node.",
        dynamic=True, low=0, high=LONG_MAX,
        ignored="a node has one directory, and nothing is moved between directories.")

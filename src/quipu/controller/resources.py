"""The kinds of resources that have settings, and where the state stores the settings of each.

A topic's are part of the topic; those of brokers, groups and client metrics are in tables by name.
Levels of loggers belong to a process and are not stored (broker/observing/loggers.py).
"""

from enum import IntEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from quipu.controller.state import ClusterState


class ResourceType(IntEnum):
    """What a setting belongs to; Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


NAMED: Final = (ResourceType.BROKER, ResourceType.CLIENT_METRICS, ResourceType.GROUP)
STORED: Final = frozenset({ResourceType.TOPIC, *NAMED})
# Groups, and likewise subscriptions to client metrics, that may have settings: each is kept in
# memory on every node, and clients choose the names.
NAMES_MAX: Final = 10_000
NAME_SIZE_MAX: Final = 1024  # characters; of a group's id as well


def named_configs(state: "ClusterState", kind: ResourceType) -> dict[str, dict[str, str]]:
    """The settings of all resources of one of the kinds in NAMED, by name."""
    return {ResourceType.BROKER: state.broker_configs, ResourceType.GROUP: state.group_configs,
            ResourceType.CLIENT_METRICS: state.client_metrics_configs}[kind]

"""The bytes per second of replicas that catch up, as the cluster's settings say.

What another node may receive is known as far as the cluster's metadata has it: its dynamic
settings, and those of all brokers.
"""

from typing import Protocol

from quipu.controller.state import CLUSTER_DEFAULT, ClusterState
from quipu.model.ids import NodeId
from quipu.model.settings import BROKER, BrokerSettings, stored_value
from quipu.model.settings_types import LONG_MAX

FOLLOWER_RATE = "follower.replication.throttled.rate"


class _Metadata(Protocol):
    @property
    def state(self) -> ClusterState: ...
    @property
    def settings(self) -> BrokerSettings: ...


class ThrottleRates:
    """The rates of this node and others; see `broker.replication.throttling.ReplicationRates`."""

    def __init__(self, node_id: NodeId, metadata: _Metadata) -> None:
        self._node_id = node_id
        self._metadata = metadata

    def leader_rate(self) -> int:
        """What this node may send to replicas that catch up."""
        return self._metadata.settings.leader_replication_throttled_rate

    def follower_rate(self, node_id: NodeId) -> int:
        """What `node_id` may receive while it catches up."""
        if node_id == self._node_id:
            return self._metadata.settings.follower_replication_throttled_rate
        configs = self._metadata.state.broker_configs
        for name in (str(node_id), CLUSTER_DEFAULT):
            text = configs.get(name, {}).get(FOLLOWER_RATE)
            rate = stored_value(BROKER, FOLLOWER_RATE, text) if text is not None else None
            if isinstance(rate, int):
                return rate
        return LONG_MAX

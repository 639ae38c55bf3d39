"""The driver of chains: what the cores of `quipu.chain` want done, done on logs and peers.

    replication     start here: all partitions of a node; messages in and out, ticks, reports
    partition_chain one partition: carries the effects of its core out, tells it what happened
    repairs         logs that have failed, opened again in the background
    fresh           what is still in memory, to be sent on
    configuration   the batch that begins an epoch
    log_view        a log as a core sees it
    repairs         batches that a disk has changed, replaced by those of another replica

Not here: what a replica does and why (quipu.chain), who the replicas are (broker/cluster), what
clients see of it (broker/partition.py).
"""

from quipu.broker.replication.replication import LeadershipListener, Replication, Reporter

__all__ = ["LeadershipListener", "Replication", "Reporter"]

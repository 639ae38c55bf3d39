"""Drives chain replication: carries out effects of the cores of `quipu.chain` on logs and peers.

    replication.py      `ChainReplication`: all partitions of a node: messages, ticks, reports
    partition_chain.py  `PartitionChain`: one partition: events into its core, effects out
    recent_entries.py   keeps just appended entries in memory, to send them without a read
    throttling.py       limits the traffic of replicas that catch up
    configuration.py    encodes the configuration batch, which begins an epoch
    log_view.py         a storage log as a replication core sees it
    log_repairs.py      opens logs that have failed again, in the background
    batch_repairs.py    replaces batches that a disk has changed by another replica's, or the tier's

Start with partition_chain.py for one partition, with replication.py for what they share.

Not here: the rules of replication (quipu.chain), which nodes are the replicas (broker/cluster), the
partition that clients use (broker/partitions/replicated_partition.py).
"""

from quipu.broker.replication.replication import ChainReplication, LeadershipListener, Reporter

__all__ = ["ChainReplication", "LeadershipListener", "Reporter"]

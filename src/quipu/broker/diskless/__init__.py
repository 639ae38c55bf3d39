"""Diskless topics on a broker: every node takes their writes and serves their records.

    partition.py     DisklessPartition: one partition, as a `PartitionLog`
    appends.py       appends that wait for their commit, or for the control plane to know the log
    deadlines.py     ends appends whose producers do not want to wait any longer
    tier_reads.py    reads and searches that begin in the remote tier
    tier.py          what a diskless partition offers to a remote tier
    partitions.py    all diskless partitions of the node, by the key of their logs
    refreshes.py     asks for the bounds of many logs in one question
    registration.py  keeps the logs of the control plane in step with the cluster's topics
    cleaning.py      the node's cleaner, made from its settings
    tiered_partition.py  a partition whose old records move to the remote tier
    tiering.py       moves them, and lets old segments expire there
    tier_orphans.py  finds segments that appeared late, and deletes them
    deleted_tiers.py  deletes the segments of deleted topics
    tiering_start.py  starts these, and migrations
    services.py      what the partitions share: writer, reader, control plane
    migration.py     what heads do so that topics on chains become diskless
    opening.py       makes all of it from the settings, and starts and stops it

Start with `partition`, at `append` and `read`.
Not here: objects, writer, reader and control plane (quipu.diskless), which need no broker.
"""

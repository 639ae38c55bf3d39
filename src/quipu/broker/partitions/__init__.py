"""The partitions that this node is a replica of: the first implementation of `PartitionLog`.

    partitions.py            all partitions of the node, by name and by id; follows the metadata
    replicated_partition.py  one partition: a storage log with a role in a chain
    batch_checks.py          checks that a producer's batch keeps its topic's rules
    min_insync.py            checks that enough replicas serve for a write
    sealing.py               partitions that take no writes, as they are about to become diskless
    sequence_guard.py        lets idempotent batches be retried that follow a refused one
    acknowledgements.py      completes an append when it is flushed or committed, by its acks
    commit_waiters.py        appends that wait until they are committed
    fetch_waiters.py         fetches that wait for new records
    end_offset_barrier.py    waits until a partition's end offset is safe to return
    removal.py               DeleteRecords, and retention
    time_lookup.py           carries out searches by timestamp in the local log
    tiered_reads.py          reads and searches that begin in the remote tier
    partition_tier.py        segments for the remote tier to copy, and what is recorded of copies
    heavy_batches.py         which batches take too long to decompress on the event loop
    internal_records.py      the cluster's own records in a partition's log
    lease.py                 how long this node may lead without a response of the controller
    chain_driver.py          the protocol between a partition and the driver of its chain
    disk_errors.py           logs a disk that refuses batches, now and then
    partition_errors.py      the errors of partitions that cannot be written or read here
    cleaning.py              compacts logs, in another process
    scrubbing.py             reads complete segments again, to find bytes that a disk has changed

Start at quipu/model/partition_log.py, the protocol; then `replicated_partition.py`, at `append`
and `read`.
Not here: which nodes are replicas and what they have (replication/), files (storage), requests
(serving/, handlers/), which use only the protocol.
"""

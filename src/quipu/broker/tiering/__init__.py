"""Tiered storage on one node: copies segments to the tier, deletes them there, and reads them.

    expiry.py        which remote segments may be deleted, and where the log starts then; pure
    copying.py       copies one segment: metadata, bytes, metadata, and the log itself
    deleting.py      deletes remote segments: metadata, bytes, metadata
    led_partition.py one partition that this node leads: what is due, and when to try again
    deleted_partitions.py  finishes deletions of partitions of topics that do not exist
    orphan_sweep.py  deletes objects that no metadata refers to
    remote_log.py    all partitions that this node leads: copies and deletes in the background
    roles.py         keeps the metadata manager informed of what this node leads and follows
    remote_reads.py  reads of records that only the tier has, for fetches and searches by time
    lookup.py        finds remote segments, for people and for clients that read objects
    opening.py       makes all of it from a node's settings

Start with remote_log.py for writing and remote_reads.py for reading.  Not here: the metadata and
its rules (remote/metadata), the objects (remote/segments), a log's own side (broker/partitions).
"""

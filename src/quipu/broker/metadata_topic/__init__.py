"""The metadata of remote segments in a topic of the cluster's own, `__remote_log_metadata`.

    codec.py          operations and entries as bytes: in the log, and between nodes
    shard.py          one partition of the topic, while this node leads it
    topic_backend.py  the storage backend of a node: finds the leader of a key, and asks it

It is a storage backend like any other (remote/metadata/storage): keys of one user's partition are
in one partition of the topic, whose leader serves them.  Start with topic_backend.py.  Not here:
what the keys and values mean (remote/metadata), the log and its snapshots (coordinators/).
"""

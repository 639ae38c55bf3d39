"""A small blocking Kafka client that hands out record batches as the broker keeps them.

librdkafka gives records one by one; the pipeline wants whole batches, to turn them into columns.

    cluster.py      `Cluster`: connections, topics, leaders, offsets; start here
    fetch.py        `fetch`: ranges of partitions to batches
    remote_log.py   which offsets are in a remote tier, and in which objects
    diskless_log.py in which objects the records of diskless partitions are
    ranges.py       a range of offsets of one partition
    commit.py       commits a consumer group's offsets, for tools that monitor the group
    coordinator.py  finds the broker that coordinates a consumer group
    admin/          requests about topics, groups, chains and the quorum
    shared.py       `Cluster` objects that are kept for as long as the process lives
    settings.py     the settings of a client, named as in Kafka
    connection.py   one connection to one broker: the only one in Quipu for Kafka's protocol
    tls.py          the TLS context of a connection
    sasl.py         SASL authentication of the client
    metadata.py     brokers, topics and leaders, as a Metadata response reports them
    retry.py        pauses between attempts, up to a deadline
    errors.py       the errors, each with whether a retry can help

Not here: producing (librdkafka does that well), membership in groups and their rebalances.
"""

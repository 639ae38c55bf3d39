"""The broker: serves Kafka's protocol on top of the storage log.

    node.py          creates the parts of a node, starts them in order and stops them in reverse
    listening.py     turns settings into the configuration of sockets: listeners, limits, peers
    periodic.py      work that is done again and again in the background
    error_codes.py   maps errors to the Kafka error codes that clients get
    serving/         client connections: requests to handlers, responses in order
    handlers/        one module per API key; the listing is the supported protocol
    partitions/      partitions of this node, behind `PartitionLog` (model/partition_log.py)
    replication/     drives the replication of partitions down a chain, and repairs logs
    quorum/          drives Raft, which replicates the cluster's metadata
    cluster/         the cluster's metadata: the controller, and this node's membership
    coordinators/    state machines that are kept in the partitions of an internal topic
    groups/          consumer groups and their committed offsets
    metadata_topic/  metadata of remote segments, in an internal topic
    diskless/        topics without local logs: every node writes and reads them
    tiering/         copies segments to a remote tier, deletes them there, and reads them
    observing/       metrics, health and log lines

Start with node.py, then serving/server.py and handlers/k00_produce.py.

Not here: deciding about metadata (controller), files (storage), bytes (wire), sockets (runtime).
"""

"""State machines kept in partitions of an internal topic; the leader of a partition runs its own.

    keys.py            finds the partition of a key, by Java's hash of its name
    command_log.py     reads and appends the commands of one partition, while this node leads it
    record_log.py      the same for state that is kept as records with keys, which clients can read
    command_writer.py  the one writer of a log: keeps the order, groups appends, takes snapshots
    shard.py           one partition's state machine, from its loading to the loss of leadership
    shards.py          all shards that this node leads, and the coordinators of other keys

A coordinator is a state machine (`shard.CoordinatorState`) that is changed by commands: replay
gives `apply` every command, and `snapshot` returns commands that build the same state from nothing.
A command is bytes that only its machine understands, or a record with a key.
Start at `shards.py`.  Not here: what the commands mean (groups/), the batches in the log
(storage/state_log.py), leadership of partitions (replication/).
"""

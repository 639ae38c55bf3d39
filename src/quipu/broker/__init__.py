"""The broker: serves Kafka's protocol on top of the storage log.

    server      connections in, frames to handlers, answers out in order
    request_queue, answers   requests that wait for their turn; how large answers may be
    large_produce, large_fetch   requests of many partitions, which take turns
    handlers/   one module per API key; the listing is the supported protocol
    partition   one partition: append, read, who waits for what
    settling    where a partition ends, when that must not be said too low
    sequence_guard   idempotent batches sent behind one that was refused
    groups/     consumer groups
    cluster     the metadata log and the state that its replay gives
    node        puts it all together, starts and stops it

Not here: deciding about metadata (controller), files (storage), bytes (wire).
"""

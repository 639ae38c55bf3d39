"""A small blocking Kafka client that hands out record batches as the broker keeps them.

librdkafka gives records one by one; the pipeline wants whole batches, to turn them into columns.

    cluster      `Cluster`: topics, leaders, offsets; start here
    fetch        `fetch`: ranges of partitions to batches
    commit       a group's offsets, for whoever watches them
    shared       clusters that are kept for as long as the process lives
    settings     what a client can be told, in Kafka's words
    connection   one connection to one broker; `tls` and `sasl` are how it begins
    metadata, ranges, retry, errors              what the others are made of

Not here: producing (librdkafka does that well), groups and their rebalances.
"""

"""The remote log metadata manager: which remote segments there are, and in which state.

    interface.py         `RemoteLogMetadataManager`, Kafka's interface
    factory.py           makes the manager that settings describe
    manager.py           the manager over a storage backend
    leading.py           a partition that this broker leads: takes over, writes, serves from memory
    following.py         a partition that this broker follows: reads what is stored
    changes.py           changes as operations on keys, and a partition's cache from its entries
    partition_cache.py   the segments of one partition; pure
    epoch_state.py       the segments of one leader epoch; pure
    segment_metadata.py  the values: segments, updates, deletions; pure
    states.py            the life cycles of segments and deletions, as tables; pure
    serde.py             values as bytes
    records.py           the records that the bytes consist of
    errors.py            errors, by what the caller must do
    storage/             backends, their protocol, and their keys

Start with interface.py, then epoch_state.py and leading.py.

Not here: objects with the records of segments (remote/segments); when a segment is copied or
deleted (broker).
"""

"""Reading diskless topics: from any node, out of one cache of what all partitions read.

    stats.py           what a reader has done, for metrics
    coordinates.py     what is known of logs: bounds, and where batches are; pure
    blocks.py          batches that are checked and ready to be sent; pure
    committed.py       what this node has committed itself, as blocks; pure
    block_cache.py     the blocks read last, bounded in bytes
    finds.py           asks the control plane where batches are
    loads.py           reads blocks from the store, each once
    fetches.py         finds and reads the blocks from an offset on, and reads ahead
    times.py           finds records by their time
    reader.py          DisklessReader

Start with reader.py.

Not here: the bytes of an object (objects/), fetches that wait for a read (runtime/shared_reads.py),
Fetch requests (broker/diskless), direct reads by Spark (pipeline/reading).
"""

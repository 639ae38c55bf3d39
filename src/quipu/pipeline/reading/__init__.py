"""Decides which ranges of offsets are read next, and reads them; without Spark.

    options.py          the options of a reader, named as in Spark's Kafka source
    planned_options.py  the options of a planned source
    patterns.py         finds topics by a regular expression
    positions.py        the next offset of each partition, also as JSON
    stream.py           `Stream`: where a stream begins, and the end of each of its batches
    ranges.py           the offsets of a batch, divided among tasks
    loop.py             `read_ranges`: reads ranges within a task
    direct.py           reads old records from object storage, past the brokers
    objects.py          `ObjectReading`: the thread that fetches objects
    object_runs.py      fetches batches of diskless topics there, and gives them their offsets

Start with stream.py, which has the invariants of positions; then loop.py.
Not here: fetching (client/), decoding records (records/, formats/), storing positions (views/).
"""

"""The targets to which sinks write the versions of a view, each once, also after a crash; no Spark.

    contract.py   `SinkTarget`: the protocol of targets, and its invariants
    delta.py      a Delta table
    kafka.py      a topic
    memory.py     the console, and memory, for tests
    parquet.py    a directory of Parquet files
    producer.py   sends rows to topics with librdkafka, for `df.write.format("quipu")`

Start with contract.py, then parquet.py, the simplest that survives crashes.  Not here: which
changes are written, and when (`pipeline/spark/sinks`).
"""

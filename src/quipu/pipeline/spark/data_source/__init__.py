"""`format("quipu")`: the data source by which Spark reads and writes topics.

    source.py     `QuipuDataSource`: batch reads and streams
    columns.py    the columns of a record, with the names and types of Spark's Kafka source
    writer.py     writes rows to topics
    register.py   registers the data source with a session that does not find it

Start with source.py.  Not here: which offsets are read (`pipeline/reading`), the producer
(`pipeline/sinks/producer.py`).
"""

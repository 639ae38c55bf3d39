"""Turns the messages of a planned source into rows, within a task and without Spark.

    arrow_columns.py  Arrow schemas and batches in which every column may be NULL, as in Spark
    pruning.py        reduces a source to the columns that a query needs
    source_reader.py  `SourceReader`: reads ranges of offsets, decodes messages, opens envelopes
    task_rows.py      the rows that tasks send to each other and to the driver

Start with source_reader.py.  Not here: what a view does with the rows (`pipeline/views`), and
starting tasks (`pipeline/spark`).
"""

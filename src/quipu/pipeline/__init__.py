"""Sources with metadata columns, and views of them, on Spark.

    text -> sql (parse) -> plan (columns, types, every error) -> spark (queries) -> tables (state)
    bytes -> client -> records (Arrow) -> formats (columns) -> envelopes (rows, events) -> tables

Only `spark` imports pyspark.  Everything else is Arrow in, Arrow out, and runs on any executor.
"""

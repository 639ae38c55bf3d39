"""`quipu bench sql`: measures the pipeline on Spark, and other ways to read the same rows.

    command.py       the command and its options; start here
    parts.py         the parts raw, json, upsert and freshness: which ways they measure and compare
    loads.py         each way to read the rows: format("quipu"), Parquet, a consumer, a query, ...
    rows.py          makes the rows, as record batches and as Arrow tables
    ready_source.py  a Spark data source without work: the limit of all data sources in Python
    report.py        rows a second of each way, and their ratios

Not here: producing and consuming without Spark (`bench`).
"""

"""The only room that imports Spark: everything with a session, a DataFrame or a plan of Spark.

    daemon.py      the process from which Spark forks its Python workers
    session/       starts Spark, registers data sources, runs tasks, supervises queries
    data_source/   `format("quipu")`: reads topics as DataFrames, and writes DataFrames to topics
    tiering/       copies old records of diskless topics to the remote tier
    queries/       analyzes queries with Spark's planner; tables as DataFrames
    views/         materialized views: their streaming queries, and reading their versions
    sinks/         writes the versions of views to files, tables and topics
    statements/    executes SQL statements; `connect`

Each may use those above it.  Start with statements/pipeline.py, which programs call, or with
`views/stream.py`, the streaming query of a view.  Not here: the work of tasks on messages and files
(`pipeline/execution`, `views`, `sinks`, `tables`), which is called from here.
"""

"""Executes SQL statements on Spark.

    pipeline.py       `connect` and `Pipeline`, the interface for programs
    live_catalog.py   the running objects of the catalog: planned sources, views, sinks
    create.py         CREATE and DROP
    select.py         SELECT
    snapshots.py      reads sources that are not materialized
    catch_up.py       waits until a view has processed the present messages of its topics
    subscribe.py      SUBSCRIBE
    show.py           SHOW and EXPLAIN
    progress.py       SHOW PROGRESS: messages, rates and lag

Start with pipeline.py.  Not here: parsing (`pipeline/sql`), and planning of sources
(`pipeline/plan`).
"""

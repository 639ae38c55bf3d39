"""Materialized views on Spark: the streaming query that makes versions, and DataFrames of them.

    stream.py           the streaming query of a view: each of its batches makes a version
    offset_source.py    the streaming source that gives Spark the end offsets of the next batch
    tasks.py            runs the tasks of a batch on executors
    results.py          updates the table of results of a view
    source_changes.py   a query over the changes of its sources
    view.py             `View`: its plan, its files, and its versions as DataFrames
    changelog.py        the changes of a view from version to version

Start with stream.py.  Not here: the work of a task and a commit (`pipeline/views`).
"""

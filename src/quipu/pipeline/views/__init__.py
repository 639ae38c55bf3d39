"""Materialized views as files, and what a batch of messages does to them; no Spark in it.

A batch of the view's streaming query is three calls, in this order:

    read_task.py      in tasks: read messages, decode them, open envelopes, pack events by bucket
    merge_task.py     in tasks: merge the events into the buckets of the tables by key
    batch_commit.py   in the driver: commit the tables, then publish the view's new version

What they work on:

    inputs.py         the sources of a view, and what each task of a batch reads
    versions.py       versions of a view: which messages each has seen, and which files it has
    view_files.py     a view's folders, tables and versions
    append_files.py   append-only tables: rows of sources without keys, and dead letters
    aggregation.py    a query with GROUP BY taken apart: what is kept by group
    group_merge.py    the change of a GROUP BY added to the groups that it is about
    result_merge.py   results of queries as tables of counted rows

And what is read from them:

    changes.py        what changes from one version of a view to the next
    stored_rows.py    rows and changes of views whose rows are in files as they are
    cleaning.py       old versions deleted, with the files that only they have

Start with batch_commit.py.  Not here: tables by key (`pipeline/tables`), and the streaming query
that calls all this (`pipeline/spark/views`).
"""

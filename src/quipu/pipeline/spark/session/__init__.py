"""Spark sessions, and their jobs, threads and supervised streaming queries.

    sessions.py     starts a session, or makes one with the pipeline's settings; registers sources
    java.py         finds a Java that Spark can run on
    jobs.py         runs functions in tasks, without a query plan
    supervisor.py   restarts a streaming query, or a sink, when it fails
    threads.py      closes the connections of a thread that will not call Spark again

Start with sessions.py.  Not here: the streaming queries themselves (`spark/views/stream.py`).
"""

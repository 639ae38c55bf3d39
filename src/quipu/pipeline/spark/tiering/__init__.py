"""Old records of diskless topics to the remote tier, on executors of Spark.

    copies.py   a task for each segment: reads its runs, merges them, stores the segment

Start with copies.py, which is all.  Not here: the work of a task (`diskless/tiering/executor.py`),
and what the driver does before and after it (`diskless/tiering/job.py`).
"""

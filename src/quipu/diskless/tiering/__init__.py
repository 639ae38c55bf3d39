"""Moves old records of diskless topics to the remote tier, as segments of one partition each.

    plan.py      aged runs of a log -> the segments to make of them; pure
    merge.py     the bytes of runs -> the stored batches of a segment; pure
    copying.py   reads the runs of one segment, merges them, and stores the segment
    steps.py     one log: claim, catch up, plan, register, and tell the control plane
    job.py       many logs at once, in rounds, with copies made elsewhere
    executor.py  copies a segment in a process that has only URLs, such as an executor of Spark

Start with `steps.py`.  A broker takes steps by itself (broker/diskless); a job on Spark takes those
of many logs at once, and copies on executors (pipeline/spark/tiering).  Both call the same
functions, so both make the same bytes.

Not here: when a log is due, and how long the tier keeps records (broker/diskless).
"""

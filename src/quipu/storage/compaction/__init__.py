"""Compaction of one log: the latest record of each key stays, tombstones go after their time.

    planning.py    which segments are compacted, and when (core)
    rewriting.py   what becomes of one batch (core)
    fillers.py     empty batches that cover the offsets of what was removed
    marks.py       what a compacted segment says of itself, in its checkpoint
    walk.py        the walk over records, and the map of keys; compiled if possible
    _walk_pure.py  the functions in Python
    _walk.pyx      the compiled ones
    worker.py      one pass: reads segments, and writes new ones beside them
    child.py       the process that makes a pass
    messages.py    what it is sent, and what it sends back
    switching.py   how a log begins a pass, and takes what it has written

Start with worker.py, then rewriting.py and switching.py.

Not here: when logs are looked at, and the process that does the work (broker/partitions).
"""

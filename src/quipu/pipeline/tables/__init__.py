"""Tables by key: rows in versions, in buckets of sorted Arrow files, changed a batch at a time.

    contract.py            shapes and states as plain data, and the invariants of a table
    commits.py             begins and commits versions, in the driver
    store.py               `merge_bucket`: merges a batch of events into a bucket, on executors
    merging.py             folds events into runs of entries, and merges runs; pure
    compaction.py          decides when runs are merged and data files rewritten; pure
    timing.py              which times of a timed table are closed; pure
    waiting_events.py      the events of timed tables whose time is not closed yet
    in_memory.py           folds events in memory, for a table that is not stored
    reading.py             reads rows of a version, changes between versions, outstanding errors
    sections.py            reads and writes the sections of a file: runs of entries, and rows
    files.py               files of sections with checksums, written once
    cleaning.py            removes old versions, and files that no version needs
    fingerprint_search.py  sorts and searches by fingerprint, compiled or in numpy
    _sorted.pyx            the compiled functions
    _sorted_pure.py        the same in numpy, against which the compiled ones are tested

Start with contract.py, then commits.py and store.py.
Not here: making events (envelopes/), and running merges (views/, spark/).
"""

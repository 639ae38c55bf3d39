"""Starts nodes as processes of this machine, for `quipu dev`, the bench, the demo and the tests.

    process.py   `NodeProcess`: starts one `quipu start`, waits for it, signals and stops it; start
                 here
    group.py     `NodeGroup`: starts several nodes, and stops all of them when its block ends
    postgres.py  a PostgreSQL server whose data stays in a folder
    progress.py  `ProgressWatch`: how long to wait for a process that makes progress
    usage.py     the CPU time and memory that a process has used
    ports.py     free ports of this machine, and the process that listens on one

Not here: what a node does once it runs (`broker`), or which settings it gets (the callers).
"""

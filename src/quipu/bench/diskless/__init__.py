"""Measures diskless topics: their lines of `make bench`, `quipu bench diskless | capacity`.

    nodes.py            temporary nodes with diskless topics, and what they have counted
    produce.py          P9: produce through a node, as a ratio to raw puts; start here
    raw_puts.py         those puts
    commits.py          P10: commits of a control plane, as a ratio to bare transactions
    bare_commits.py     those transactions, and how both are counted
    postgres_server.py  a PostgreSQL server, a process of its own
    costs.py            latency by flush interval, rates, and requests per GiB
    command.py          `quipu bench diskless`, which shows these
    capacity.py         predicts objects, transactions, bytes and rows for each GiB; pure
    cluster.py          a temporary cluster with diskless topics
    measured_capacity.py  counts what such a cluster does for the same load
    capacity_command.py   `quipu bench capacity`, which shows both

Start with command.py.

Not here: reads past the brokers (bench/sql).
"""

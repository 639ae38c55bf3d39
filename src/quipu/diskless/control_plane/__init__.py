"""The control plane of diskless topics: who assigns offsets and knows where each batch is.

    interface.py        the operations, and what every implementation guarantees
    urls.py             opens the control plane that a URL names
    belonging.py        it belongs to one cluster

    sequences.py        whether a batch of an idempotent producer is the next one: pure
    adoption.py         whether a log that was on disks is entered: pure
    commit_plan.py      what a commit does: pure
    retention.py        which runs a retention rule does not keep: pure
    fences.py           which keys of a writer can never be committed any more: pure
    time_index.py       finds the first run that is not before a time: pure
    missed_commits.py   notices commits that nobody told of: pure
    listeners.py        who watches commits

    memory.py           in this process's memory, for the simulator
    memory_tables.py    what it knows

    statements.py       queries that SQLite and PostgreSQL share
    migrations/         the schema of their databases, in numbered steps
    sqlite.py           in a SQLite file, for one node
    sqlite_tables.py    its rows
    sqlite_reads.py     its operations that only read
    sqlite_changes.py   its operations that change something
    sqlite_adoption.py  its logs that were on disks
    sqlite_fences.py    its keys that can never be committed any more, and whose it is
    postgres.py         in PostgreSQL, for a cluster
    postgres_values.py  its statements, with the values that they take and return
    postgres_adoption.py  its logs that were on disks
    postgres_pool.py    connections, and what is repeated when one is lost
    listening.py        tells other nodes of commits, and hears of theirs

Start with interface.py; migrations/commits.py has the commit of PostgreSQL.  Every implementation
passes the tests in tests/contract/control_plane.

Not here: the bytes of objects, and who stores, reads and deletes them.
"""

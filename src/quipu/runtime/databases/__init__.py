"""SQL databases: transactions on connections that are opened again when they are lost.

    errors.py    the errors that a user of a database gives, by what its callers must do
    urls.py      URLs of databases
    sqlite.py    a SQLite file, whose statements run in threads
    postgres.py  connections to PostgreSQL, and what is repeated when one is lost

Start with errors.py: who uses a database gives its own classes of errors, so that its callers see
no others.

Not here: tables and statements (remote/metadata/storage, diskless/control_plane).
"""

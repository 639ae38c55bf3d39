"""Where metadata is stored: a key-value protocol, its backends, and the keys.

    backend.py     `MetadataStorageBackend`, the protocol of all backends, and its guarantees
    keys.py        the keys under which metadata is stored
    connector.py   makes a backend and its key factory, as settings say
    urls.py        the URLs of backends
    entry_table.py keys and values in memory, in order
    memory.py      a backend in memory
    sql_backend.py what the next two have in common
    sqlite.py      a backend in a SQLite file
    postgres.py    a backend in PostgreSQL

Start with backend.py.  Every backend passes the tests in tests/contract/metadata_backend.

Not here: the backend in an internal topic, which a broker provides (connector.py, `schemes`); what
the values mean (metadata/serde.py).
"""

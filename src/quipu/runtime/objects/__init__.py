"""Object stores: named objects that are written whole and never changed in part.

    store.py     `ObjectStore`, the protocol of all stores, its guarantees and limits
    errors.py    errors of a store, by what the caller must do
    keys.py      which keys objects may have
    local.py     a store in a directory of this machine
    memory.py    a store in memory, for tests; the simulator's store uses it, too
    cloud.py     a store of S3, Google Cloud Storage or Azure
    cloud_options.py  makes the library's clients, with time limits and retries
    cloud_errors.py   turns the library's errors into those of a store
    credentials.py    reads a file of credentials
    parameters.py     the parameters in the URL of a store in the cloud
    urls.py      opens the store that a URL names

Start with store.py.  The simulator's store, with delays and faults, is in sim/twins.  Every store
passes the tests in tests/contract/object_store.

Not here: retries across calls, which are up to the caller; what objects contain.
"""

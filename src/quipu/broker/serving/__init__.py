"""The way of a request from its connection to its handler, and of the response back.

    server.py           one client connection: calls the handlers, sends responses in order
    context.py          what a handler is given: the parts of the broker, and the client
    reply.py            how the handlers of Produce and Fetch, which write bytes, respond
    request_queue.py    lets large requests wait for their turn, a few of them at a time
    response_budget.py  bounds the memory of one response, and of all responses together
    producing.py        appends one batch of a Produce; responds when all batches are kept
    large_produce.py    Produce of many batches: takes turns with other requests
    diskless_room.py    lets requests wait while too much is on its way to diskless topics
    record_checks.py    checks, and compresses again, the records of batches in a thread
    recompressed.py     the topics whose compression.type is not producer
    fetching.py         reads the partitions of a Fetch once, within the client's limits
    pending_fetch.py    Fetch of few partitions: waits for records and responds
    large_fetch.py      Fetch of many partitions: takes turns with other requests
    fetch_sessions.py   incremental fetch sessions (KIP-227)
    timestamp_searches.py  the searches by timestamp of a ListOffsets, within time limits
    transactions.py     what clients that want transactions are told
    routing.py          finds the leader of a partition, and the address of a node
    client_zone.py      the zone of a client, from its client id or its listener
    zone_views.py       what a client in a zone is shown of a diskless partition
    topic_views.py      topics as Metadata shows them; encoded once per change
    placements.py       placements of diskless partitions, as responses and metrics show them
    features.py         the features of the cluster, and their levels
    forwarding.py       sends requests to the controller that only it can carry out

Start at `server.py`, which reads requests off a connection and keeps responses in order.
Not here: what an API means (handlers/), what a partition promises (model/partition_log.py), the
connection itself (runtime/net).
"""

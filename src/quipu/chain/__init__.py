"""Chain replication of one partition, as a state machine without I/O.

Events go in (configurations, messages, appends, flushes, ticks); effects come out (send, append,
truncate, advance what is committed).  The driver (broker/replication) carries the effects out, in
their order.

    replica.py      `Replica`: one partition on one node, and what its driver must do
    roles.py        the roles of a replica, and which may follow which
    state.py        what the parts of a replica share: log, epoch, role, what is committed
    events.py       what happens to a replica
    effects.py      what a replica asks its driver to do
    messages.py     the messages between replicas
    codec.py        messages as bytes
    relay.py        what passes through a node: batches down, acks up, what is committed
    outbound.py     sending to the successor: windows, sessions, going back
    inbound.py      receiving from the predecessor: gaps, truncation, starting over
    recovery.py     a new head: which member has the longest log, and fetching what it holds
    history.py      where two logs diverge
    epoch_fence.py  claims of newer epochs by other nodes

Start with replica.py and roles.py; a batch passes replica.py, relay.py, outbound.py and inbound.py.

The head is Kafka's leader, the other serving members are its in-sync followers.  Batches that must
be sent again are read from the log, so a restart of the process loses none of them.

Not here: files and sockets; which nodes are members, and when that changes (controller).
"""

"""Chain replication of one partition, as a state machine without I/O.

Events in (configurations, messages, appends, flushes, ticks); effects out (send, append, cut,
committed).  Whoever drives it (broker/replication) carries the effects out, in their order.

    replica.py    start here: one `Replica` per partition, and what its driver owes it
    role.py       what it is doing, for people              fence.py   epochs that others speak of
    events.py     what happens to it          effects.py   what it wants done
    messages.py   what replicas tell each other             codec.py   the same as bytes
    standing.py   what its parts share: the log as it sees it, the epoch, what is committed
    recovery.py   a new head: who has the longest log, and getting what it holds
    flow.py       what passes through a node: batches down, acks up, what is committed
    outbound.py   sending to the next node; windows, sessions, going back
    inbound.py    receiving from the node before; gaps, cuts, beginning anew
    history.py    where two logs part

The log is the history: whatever must be sent again is read from it, so nothing that matters is
lost with the memory of a process.

Not here: files and sockets; who the members are and when that changes (controller).
"""

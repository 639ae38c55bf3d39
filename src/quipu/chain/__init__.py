"""Chain replication of one partition, as a state machine without I/O.

Events in (configurations, messages, appends, flushes, ticks); effects out (send, append, cut,
committed).  Whoever drives it (broker/replication) carries the effects out, in their order.

Not here: files and sockets; who the members are and when that changes (controller).
"""

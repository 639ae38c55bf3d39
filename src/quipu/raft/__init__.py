"""Consensus: a replicated log of commands, as a state machine without I/O.

Messages and ticks in; messages, entries to persist and committed entries out.  Whoever drives it
(broker/quorum) makes durable first and sends afterwards.

Not here: files and sockets, what a command means (controller).
"""

"""Consensus: a replicated log of commands, as a state machine without I/O.

Messages and the time in; messages, entries to persist and committed entries out.  Whoever drives
it (broker/quorum) makes durable first and sends afterwards.

    core.py           `Raft`, the whole of it: terms, roles, what goes in and what comes out
    admission.py      whose messages are taken, and which numbers
    follower.py       the role of one who is led, or looks on
    candidate.py      the role of one who wants to lead; who gets a vote
    leader.py         the role of the one who decides; replication.py: who is sent what, and when
    membership.py     who votes, and how that changes, one node at a time
    reads.py          read-index: reads that see all that was decided before them
    image.py          a state as a whole, sent in pieces to those for whom the log is too short
    log.py            the entries: what is written, durable, committed, handed out
    progress.py       how far a follower is, as its leader knows
    messages.py       what nodes say to each other; codec.py: the same as bytes
    settings.py       patience and sizes

A driver's loop, in short:

    raft.tick(now_ms); raft.step(sender, message); raft.propose(commands)   in any order
    ready = raft.ready()
    send(ready.now); write(ready.hard_state, ready.image, ready.entries); apply(ready.committed)
    when that is durable: raft.persisted(ready.number); send(ready.after)

Not here: files and sockets (broker/quorum), what a command means (controller).
"""

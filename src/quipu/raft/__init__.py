"""Raft consensus: a replicated log of commands, as a state machine without I/O.

Messages and the time go in; messages, entries to persist and committed entries come out.  The
driver (broker/quorum) makes things durable first and sends afterwards.

    core.py         `Raft`, one node: term, vote, role, what goes in and what comes out
    ready.py        what the driver gives the core at a start, and takes from it at each step
    admission.py    which messages are rejected: implausible numbers, senders that do not vote
    follower.py     the role that appends a leader's entries; without a vote it is an observer
    candidate.py    the role that asks for pre-votes and votes; when a node grants its vote
    leader.py       the role that takes proposals and advances the commit index
    replication.py  what a leader sends to its followers and observers, and when
    progress.py     how far one follower is, as its leader knows
    reads.py        read-index: linearizable reads without an entry in the log
    snapshot.py     a snapshot on its way to a follower, in chunks
    membership.py   the voters, and how they change, one node at a time
    log.py          the entries: how far they are written, durable, committed and applied
    messages.py     the messages between nodes, and the entries and snapshots of their logs
    codec.py        messages and entries as bytes
    settings.py     timeouts and sizes

Start with core.py, then follower.py, candidate.py and leader.py.  A driver's loop, in short:

    raft.tick(now_ms); raft.step(sender, message); raft.propose(commands)   in any order
    ready = raft.ready()
    send(ready.messages)
    write(ready.hard_state, ready.snapshot, ready.entries); apply(ready.committed_entries)
    when that is durable: raft.persisted(ready.number); send(ready.messages_when_durable)

Not here: files and sockets (broker/quorum), what a command means (controller).
"""

"""What a node of the quorum has kept, in one log that is only ever appended to: `__cluster-0`.

    batches of type    hold
    VOTE               the term, the vote, and whether the node had lost everything
    CONTROLLER         one entry: its commands, one per record
    CONFIGURATION      one entry: who votes
    SNAPSHOT           a state as a whole: begin, items, end

The key of an entry's records is its index i64 and its term i64; the value is a command.  An entry
voids every entry at or above its index that lies before it, so a conflict needs no truncation.
The record "begin" of a state has the type of its commands u8, then index i64, term i64 and the
configuration; "end" has the number of items u64 and their CRC-32C u32.  All big endian.

Invariants
    W1  replay gives what was last written: the newest whole state, the entries after it without a
        gap, the last term and vote
    W2  a state starts a segment, and is followed there by the term, the vote and the entries after
        it; the segments before go only when all of that is durable
    W3  a state without its end, or whose end does not agree, was being written in a crash: what
        it was to replace is still there

A log of the time before quorums has commands without keys and states without an index: its
batches are entries of term 0, one after the other, and were all decided.

Not here: when to write or to sync (driver.py), what entries mean (raft/).
"""

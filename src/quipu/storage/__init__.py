"""The storage log: everything durable on a node is a typed batch in one of these.

Start with `log.py`: what a log does for others.  Then `log_state.py`: what it is, and what always
holds.  A batch's life is in writing, rolling, flush, trimming, in this order.

    log.py            `Log`, what other rooms use: append, read, truncate, close
    log_state.py      `LogState`, the one owner of a log's state; the invariants of a log
    phases.py         the life of a log as a table: unloaded, empty, open, failed, closed
    opening.py        how a log is opened, begun and closed
    writing.py        batches of the node itself, and copies of another node's
    rolling.py        from one segment to the next
    trimming.py       DeleteRecords, retention, truncation, restart at another node's checkpoint
    retention.py      which segments may go
    tiering.py        what a log does for a remote tier, and what it knows of it
    entries.py        batches of one type that travel from one log to another: read and checked
    flush.py          group commit: what is durable, and who waits for it
    appended.py       what a log returns and reports
    config.py         the settings of one log
    log_directory.py  the directory of one log, and what the node recorded of the log
    recovery.py       from a directory to a log, after a clean shutdown or a crash
    reopening.py      a log that has failed, made ready to be opened again
    repeats.py        batches of idempotent producers that were written long ago
    state_log.py      commands and snapshots of a state machine, kept in a log
    segments/         the files of one log, and how batches are found in them
    compaction/       the latest record of each key stays: passes over a log, and how it takes them
    derived/          what a log derives from its batches: checkpoint, leader epochs, producers
    directory/        all logs of one node in one data directory
    inspect/          logs looked at from outside, without a node: show, check, compare, repair

Two offsets count the records of a log.  Both are 0-based, and ends are exclusive.

    client offset  `Offset`, Kafka's offset: counts the records of data batches only.  Named
                   with `offset`: base_offset, end_offset, next_offset, flushed_offset,
                   log_start_offset (Kafka's name, though it is a client offset)
    log offset     `LogOffset`: counts the records of all batches, internal ones too; replicas
                   agree on it.  Named with `log` where the client offset has `offset`: base_log,
                   log_end, next_log, flushed_log, first_log, committed_log; alone, log_offset

So base_offset and base_log are of one batch or segment, end_offset and log_end of one log.

Not here: the bytes of a batch (wire), requests and replication (broker), sockets, other nodes.
"""

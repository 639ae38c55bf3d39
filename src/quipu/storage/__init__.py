"""The storage log: everything durable on a node is a typed batch in one of these.

Start with `log`: what a log promises, and its parts in the order of a batch's life.

    config          the settings of one log
    log             append, read, offsets, truncate, close; its parts:
        opening     found or begun, closed        rolling   from one segment to the next
        writing     batches of the node's own     entries   copies of another node's batches
        trimming    cut, dropped, begun anew
    segment         one file of batches, and how it is found in (index)
    producers       idempotent producers: which batches were seen
    epochs          who led when
    checkpoint      the state that every segment begins with
    flush           group commit
    recovery        from a directory to a log, after a clean stop or a crash
    reading         by client offset, by log offset, by time
    retention       which segments may go
    damage          batches that a disk has changed: found, passed by, replaced
    data_directory  the logs of one node, their lock, and what is remembered of them (node_log)
    removal         logs that a start finds on their way out
    directory_names what the directories of logs are called, and which are logs
    reserve         room on the disk for what a node must write when there is no other
    reopening       a log that has failed, made ready to be opened again

Not here: bytes of a batch (wire), requests (broker), sockets, other nodes.
"""

"""Logs looked at from outside, without a node: what is in them, and is it whole.

Start with `examine`: it goes through a log once and says what it sees.

    walk        one file of batches, and how to go on after damage
    files       which files make a log, from any path that a person gives
    continuity  what must hold from one batch to the next
    index_check an index against the segment that it is for
    examine     a whole log: batches, findings, summary
    render      what was seen, as text and as JSON
    marks       what the node expects of each log
    diff        where two replicas of a log part ways
    repair      cut a log at its last good batch, keeping what is cut

Everything streams: memory does not grow with the log.  Only `repair` writes, and only when told.
Not here: how a node opens a log (storage/recovery.py), the commands (cli/log.py).
"""

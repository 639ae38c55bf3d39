"""Logs looked at from outside, without a node: what is in them, and is it whole.

Start with `examine.py`: it goes through a log once and says what it sees.

    examine.py      a whole log: batches, findings, summary
    walk.py         one file of batches, and how to go on after damage
    files.py        which files make a log, from any path that a person gives
    compacted_diff.py  whether two compacted replicas are equal for a reader
    continuity.py   what must hold from one batch to the next
    index_check.py  an index against the segment that it is for
    render.py       what was seen, as text and as JSON
    marks.py        the flushed marks that the node recorded of each log
    diff.py         where two replicas of a log differ
    export.py       a log as the files of a partition of Apache Kafka
    kafka_segment.py  what is in these files: which batches, and the indexes
    repair.py       cut a log at its last good batch, keeping what is cut

Everything streams: memory does not grow with the log.  Only `repair`, `export` and `marks` write,
and only when ordered to.
Not here: how a node opens a log (recovery.py), the commands (cli/log.py).
"""

"""What the cleaner of a node has done since its start: counters that only grow."""

from dataclasses import dataclass


@dataclass(slots=True)
class CleaningStats:
    """One number for each thing that the passes do, or find."""

    logs_moved: int = 0  # steps of retention that moved the start of a log
    producers_expired: int = 0
    objects_deleted: int = 0
    receipts_kept: int = 0  # of deleted objects, written once more
    receipts_deleted: int = 0  # objects of receipts that nothing needs any more
    orphans_deleted: int = 0
    foreign_objects: int = 0  # found below the prefix of objects, and left alone
    objects_rewritten: int = 0  # sparse ones that were replaced
    rewrites: int = 0  # new objects for them
    rewritten_bytes: int = 0
    rewrites_lost: int = 0  # new objects that came too late: something had changed
    damaged_objects: int = 0  # whose bytes were not those that were written
    passes: int = 0
    failures: int = 0  # passes that ended with an error

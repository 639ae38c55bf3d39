"""Segments: the files of one log, and how batches are found and read in them.

Start with `segment.py`: what one file is and guarantees; then `reading.py`: how reads cross files.

    segment.py       one file of batches with its index; which segments are mapped (`OpenSegments`)
    segment_list.py  the segments of one log: started, dropped at the front, cut at the end
    index.py         the sparse index of one segment, in memory and as a file
    scan.py          the walk that checks every byte of a file, after a crash
    reading.py       batches by client offset and by log offset, across segments
    timestamps.py    records by time
    damage.py        batches that a disk has changed: where they are, and how they are replaced

Not here: offsets of the log as a whole, when to roll, what to drop (log.py and its parts); the
bytes of a batch (wire).
"""

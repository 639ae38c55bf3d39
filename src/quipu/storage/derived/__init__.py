"""What a log derives from its batches, besides its offsets, and keeps over a restart.

Start with `checkpoint.py`: every segment begins with one, and it carries all of this.

    checkpoint.py  the state as a whole, and the CHECKPOINT and LOG_START batches that hold it
    epochs.py      leader epochs: the first offsets of each
    producers.py   idempotent producers: their last batches, by which repeats are recognised

Not here: which batches are written (log.py), how they are scanned after a crash (recovery.py).
"""

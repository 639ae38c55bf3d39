"""Writing to diskless topics: batches of many logs become objects, in one order.

    limits.py          WriterLimits: sizes and times
    stats.py           what a writer has done, for metrics
    buffer.py          which batches go into which object, and when: the pure core
    producer_guard.py  which idempotent producers may go on after a failure: pure as well
    receipts.py        the receipts that the next object will hold
    encoding.py        makes an object from a flush
    attempts.py        stores and commits an object, with retries
    writer.py          DisklessWriter: uploads in parallel, commits in order, back pressure

Start with writer.py.

Not here: the bytes of an object (objects/), who assigns offsets (control_plane/), Produce requests
(broker/diskless).
"""

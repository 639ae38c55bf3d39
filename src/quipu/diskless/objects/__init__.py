"""The objects of diskless topics: their keys, their bytes, and what makes them describe themselves.

    names.py     who wrote an object, as its how many-th: the key says so
    footer.py    the footer: which batches the object has, and what is known of earlier objects
    receipts.py  offsets that a commit gave to the batches of an object
    encoding.py  makes an object from batches
    reading.py   reads a footer from a store, and batches from the bytes of a run

Start with docs/internals/diskless-object.md, then encoding.py and reading.py.

Not here: when objects are written (writing/), which of their batches are in use (control_plane/).
"""

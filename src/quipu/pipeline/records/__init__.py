"""Turns record batches, as the broker stores them, into Arrow columns.

    columns.py        `read_columns`: the records of a range of offsets as some columns
    transactions.py   which batches are hidden from a reader of committed records
    batches.py        limits, results and checks of batches, shared by both readers
    _columns.pyx      reads all records, compiled
    _columns_pure.py  the same in plain Python, against which the compiled one is tested

Start with columns.py.  Not here: fetching (client/), decoding keys and values (formats/).
"""

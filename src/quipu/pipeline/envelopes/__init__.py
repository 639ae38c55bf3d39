"""Envelopes: turn decoded messages into rows to add, or into events that change rows of a table.

    contract.py            `Envelope`: messages in; rows or events, and dead letters, out
    factory.py             `make_envelope`: the envelope of a source
    plain.py               ENVELOPE NONE: every message is a row
    upsert.py              ENVELOPE UPSERT, and change events with a key: the latest message counts
    row_keyed.py           change events without a key: a row is identified by its columns
    materialize.py         ENVELOPE MATERIALIZE: rows with a time and a difference
    events.py              the columns of an event: an identity, and what is done to its row
    parcels.py             serializes the events of one bucket, and reads them again
    identity.py            encodes rows as canonical bytes: equal rows have equal bytes
    fingerprints.py        a 128-bit hash of an identity, and the bucket of an identity
    _fingerprints.pyx      SipHash over a column, compiled
    _fingerprints_pure.py  the same in numpy, against which the compiled one is tested
    metadata.py            the columns of INCLUDE
    rows.py                parts of rows and errors of messages, shared by the envelopes
    row_errors.py          which records of a batch are bad, and the texts of their errors
    dead_letters.py        dead letters: bad records, with where they came from and why

Start with contract.py, then plain.py and upsert.py.
Not here: decoding the bytes of messages (formats/), and applying events to tables (tables/).
"""

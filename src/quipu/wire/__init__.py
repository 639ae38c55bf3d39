"""Bytes: Kafka's messages, record batches and compression.  Nothing here does I/O.

    messages/         one module per API key: fields of its request and response, by version
    schema.py         the base classes of messages; encode and decode
    fields.py         how fields of messages are declared
    layout.py         the fields of one version of a struct, in wire order
    encoder.py        generates the functions that encode structs
    decoder.py        generates the functions that decode structs
    function_text.py  builds Python functions from lines of text
    primitives.py     varints, tag sections, and errors about them
    frame.py          a request or response with its header, as it goes over a connection
    duplicates.py     merges elements that a request names several times
    encoded.py        arrays of a response that are encoded while they are built
    produce_codec.py  the hot path's codec of Produce
    fetch_codec.py    the hot path's codec of Fetch
    leader_codec.py   the tagged fields that name the current leader
    record_batch.py   the batches that producers send and consumers fetch
    record_check.py   checks that a batch's records match its header
    recompression.py  compresses the records of a batch with another codec
    stored_batch.py   a batch as it is stored in a file
    compression.py    the compression codecs of batches, with a limit on the output
    fast.py           the hot path's functions: compiled, or in Python
    _fast.pyx         the compiled ones
    _fast_pure.py     the same in Python; tests compare the two
    records.py        the walk over a batch's records: compiled, or in Python
    _records.pyx      the compiled one
    _records_pure.py  the same in Python; tests compare the two
    scan_run.py       the scan over plain batches of a segment: compiled, or in Python
    _scan.pyx         the compiled one
    _scan_pure.py     the same in Python; tests compare the two

Start with any module in messages/; then schema.py.
Not here: which versions are served (broker/handlers), and connections (runtime/net).
"""

"""Bytes: Kafka's messages, record batches and compression.  Nothing here does I/O.

    messages/      one module per API key: what requests and responses look like, and since when
    schema         the classes that those modules are written with; encode and decode
    fields         the notation for their fields
    frame          a request or response with its header, as it goes over a connection
    duplicates     requests that name an element several times
    encoded        arrays of an answer that are encoded while they are built
    record_batch   the batches that producers send and consumers fetch
    stored_batch   the same with what a log needs to know of them
    compression    what a batch may be compressed with

Start with any module in `messages`; then `schema`.  How classes become codecs is in `layout`,
`encoder` and `decoder`.
"""

"""Formats: decode the bytes of keys and values into Arrow columns, many messages at a time.

    contract.py     `Format` and `Decoded`: the protocol of formats, and its result
    specs.py        a FORMAT clause as plain data that is sent to executors
    factory.py      `make_format`: the format of a spec
    text.py         TEXT
    bytes.py        BYTES
    csv.py          CSV
    regex.py        REGEX, by RE2
    json/           JSON: scans the texts of a whole column
    avro/           AVRO: schemas, and programs that read messages into columns
    protobuf/       PROTOBUF: descriptors, .proto files, messages
    debezium.py     Debezium's change events, in JSON or Avro
    materialize.py  Materialize's change messages, in JSON or Avro
    headers.py      headers of records as columns
    casts.py        casts text to the types of columns; a text that does not fit is a row's error
    time_range.py   makes dates and times outside the years 1 to 9999 errors of their rows
    bounds.py       bounds on the values that one message, or one block of messages, may have
    spans.py        parts of one buffer as an Arrow array
    utf8.py         which messages are UTF-8 text

Start at contract.py, then factory.py.  No message makes a format fail: one that cannot be decoded
is an error of its row, returned as data.
Not here: reading messages (reading/, records/), the rows that they become (envelopes/), and
requests to a schema registry (registry/client.py).
"""

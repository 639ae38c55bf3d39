"""Formats: bytes of keys and values to Arrow columns, a column at a time.

    contract   what every format does
    specs      what a FORMAT clause asks for, as plain data
    make       `make_format`: a spec to the format that carries it out
    text bytes csv regex json avro protobuf    the formats
    debezium materialize                       messages that wrap rows, in JSON or Avro
    headers    one header, or all of them, as columns
    casting    text to typed columns; which texts cannot be, and why
    spans utf8 json_scan                       helpers: pieces of a buffer, text, JSON's grammar

No message can make a format fail: what cannot be decoded is an error of its row, as data.
"""

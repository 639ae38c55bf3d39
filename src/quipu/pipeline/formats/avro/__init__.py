"""Avro: messages to Arrow columns by a program that is compiled once per pair of schemas.

    format.py         `AvroFormat`: frames, writers' schemas by id, errors of rows
    schema.py         parses schemas to a tree of nodes, and finds the columns of nodes
    program.py        compiles a writer's and a reader's schema to one list of steps
    defaults.py       encodes the default values of fields as a writer would
    compatibility.py  checks whether a reader's schema can read a writer's messages
    steps.py          the steps of programs, the Arrow sinks that they fill, the faults of messages
    walk.py           runs programs: compiled if possible, else in plain Python
    _walk.pyx         the compiled walk
    _walk_pure.py     the same walk in plain Python, against which the compiled one is tested

Start at format.py.  docs/adr/0031 says why no library is used.
Not here: requests to a registry (registry/client.py), and encoding (tests use fastavro).
"""

"""Schema registries: a client of Confluent's HTTP interface, and a small registry.

    client.py       `RegistryClient`: schemas by id, subject and version
    server.py       `RegistryServer`: serves the store over HTTP
    store.py        subjects, versions, schemas by id, compatibility; no I/O
    http_server.py  an HTTP server with limits on connections and on the time of a request
    __main__.py     the command `python -m quipu.pipeline.registry`

Start with client.py.  docs/adr/0034 says why there is a server.
Not here: parsing schemas (formats/avro, formats/protobuf).
"""

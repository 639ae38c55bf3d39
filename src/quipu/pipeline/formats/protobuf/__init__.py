"""Protocol Buffers: messages to Arrow columns, parsed by Google's library.

    format.py      `ProtobufFormat`: finds the columns of descriptors, and decodes messages
    proto_file.py  parses the text of a .proto file to descriptors
    size.py        bounds the memory that a message would take, before it is parsed

Start at format.py.  docs/adr/0033 says why Quipu has its own parser of .proto files.
Not here: requests to a registry (registry/client.py).
"""

"""Framed connections, and servers for them; a frame is a length of four bytes, then the bytes.

    network.py         `Net`, through which a node makes all its sockets
    server.py          listens, accepts, connects, and holds what all connections share
    connection.py      one connection: receives frames, sends buffers
    transport.py       the layer between a connection and its socket: plain now, TLS later
    frame_handler.py   the callbacks of a connection's owner
    outgoing.py        the buffers that wait to be sent on one connection
    admission.py       limits the number and rate of connections, in total and per address
    limits.py          the limits of connections, and the counters for metrics
    hangups.py         notices peers that disconnect while their connection is not read
    listener.py        accepts connections for an asyncio protocol such as HTTP

Start with network.py, then connection.py.

Not here: what a frame means (broker/serving), the other nodes of a cluster (peers).
"""

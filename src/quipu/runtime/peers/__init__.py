"""Connections between the nodes of a cluster: authenticated links that carry messages and calls.

    peer_net.py        `PeerNet`, the protocol through which a node uses them, and its guarantees
    peers.py           the real implementation: keeps a TCP connection to each node
    address_book.py    the known nodes, their addresses, and when to dial them
    link.py            one connection between two nodes: handshake, messages, heartbeats
    hello.py           the handshake of a link: identities, and proof of the shared secret
    frame_mac.py       authenticates every frame after the handshake
    calls.py           calls and their replies, on top of messages
    discovery.py       finds the first other nodes, by DNS or from a list

Start with peer_net.py.

Not here: what messages mean (broker/quorum, broker/replication, broker/cluster); the members of a
cluster (controller).
"""

"""The doors to the world: clock, chance, disk, network, tasks.

Everything that is not a function of its inputs comes through here and is passed in, so that a
test can put a twin in its place.  Nothing in this room knows about Kafka.

    clock rng disk spawn    time, chance, files, tasks
    files mapping disk_errors    open files, mapped ones, and what is refused
    descriptors             how many descriptors there are for what
    network                 the door to everything that is a socket
    connection outgoing net framed connections, and a server of them
    peer_net                how nodes talk to each other: the words (`PeerNet`)
    peers peer_link peer_hello peer_calls    ... and the real thing
    discovery               finds the first other nodes
"""

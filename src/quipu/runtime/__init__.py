"""The doors to the world: clock, chance, disk, network, tasks.

Everything that is not a function of its inputs comes through here and is passed in, so that a
test can put a twin in its place.  Nothing in this room knows about Kafka.

    clock rng disk spawn    time, chance, files, tasks
    files mapping disk_errors    open files, mapped ones, and what is refused
    descriptors             how many descriptors there are for what
    network                 the door to everything that is a socket
    connection outgoing net framed connections, and a server of them
    listener                accepts connections for a protocol of asyncio
    admission net_limits    who may connect: how many, of which address, how fast
    hangups                 notices peers that go while nobody reads what they sent
    peer_net                how nodes talk to each other: the words (`PeerNet`)
    peers peer_link peer_hello peer_calls    ... and the real thing
    log_limits              log lines that a remote party can cause: few, short, never forged
    turns wakeups garbage   long work, and the end of many waits, in short steps; short garbage
                            collections
    discovery               finds the first other nodes
"""

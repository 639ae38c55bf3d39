"""All access to the outside world: time, randomness, files, sockets, objects, tasks and threads.

Each of them is a protocol whose implementation is passed in, so that a test or the simulator can
replace it.

    clock.py         the time
    rng.py           randomness: ids, jitter and secrets
    spawn.py         starts tasks, and logs those that fail
    turns.py         runs long work in steps, so that other work gets the loop every few ms
    slots.py         limits how much work of a kind runs at a time
    wakeups.py       ends many waits, a few in each turn of the event loop
    shared_reads.py  reads that several fetches wait for
    workers.py       threads for long computations
    child_process.py work in a process of its own, and how it is asked and answers
    loop_thread.py   an event loop in a thread, for code that blocks
    garbage.py       keeps garbage collections short
    log_limits.py    limits log lines that clients and peers can cause, in rate and length
    process.py       CPU, memory and open files of this process
    disks/           files
    net/             framed connections, and the servers that accept them
    peers/           messages and calls between the nodes of a cluster
    objects/         object stores
    databases/       SQL databases

Start with the protocols: `Disk` (disks/disk.py), `Net` (net/network.py), `PeerNet`
(peers/peer_net.py) and `ObjectStore` (objects/store.py).

Not here: Kafka.  This room knows no error code and no setting: it takes values and raises errors of
its own classes.  broker/listening.py turns settings into values, broker/error_codes.py errors into
error codes.
"""

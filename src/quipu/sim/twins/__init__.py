"""Simulated implementations of the protocols of `runtime`, for simulated nodes.

    net.py        hosts, the links between them and their faults; `Door` is the `Net` of a process
    frames.py     connections of clients: simulates `runtime.net`
    peers.py      connections between nodes: simulates `runtime.peers`
    disk.py       the delays of a disk
    objects.py    an object store: simulates `runtime.objects`
    control_plane.py  the control plane of diskless topics, behind links: simulates a database

Start with net.py: everything is sent over its links.

Not here: clocks and processes (sim/world.py, sim/loop.py); the contents of a disk
(runtime/disks/sim_disk.py).
"""

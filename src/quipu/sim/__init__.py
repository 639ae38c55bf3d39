"""The deterministic simulator: runs real cores and real nodes in a world that one seed determines.

Time is virtual; the network drops, duplicates, delays and cuts; disks lose and tear what was not
flushed; processes crash, pause and come back.  After every step, checkers named after invariants
check everything; after the faults the world heals and must converge.

    world.py      a world: machines, their processes, the checkers, the trace
    loop.py       an asyncio loop in virtual time, whose callbacks belong to processes
    dice.py       random values: one seed, and a generator derived from it for each user
    trace.py      the log of a world: one line per event, and a digest of all of them
    nemesis.py    injects faults of machines, links, disks, clocks and the object store
    runs.py       runs worlds by name and seed, and reports how to reproduce a failure
    twins/        simulated disks, connections, object stores and control planes for the nodes
    worlds/       the worlds: of Raft, chains, whole nodes, diskless topics and their placement
    workloads/    clients, and the checker of the responses that they got

Start with world.py, then worlds/node.py; docs/internals/simulation.md explains how to use it.

Not here: the contents of simulated disks (runtime/disks/sim_disk.py); planted bugs that the
checkers must find (tests/sim/mutations.py).
"""

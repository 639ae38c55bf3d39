"""The worlds that a seed can run, each with its checkers.

    node.py              whole nodes, with Kafka clients and faults
    node_checkers.py     ... checks of their stored logs
    moving_node.py       ... the same, with partitions that move to random nodes
    ordered_node.py      ... the same, with any number of replicas, in rotated orders
    tiered_node.py       ... the same, with tiered storage and a faulty object store
    tiered_node_checkers.py  ... checks of the metadata and objects of remote segments
    diskless.py          writers, readers and cleaners of diskless topics, with Kafka clients
    diskless_broker.py   ... the brokers that they are parts of
    diskless_nemesis.py  ... faults, also of the control plane
    diskless_checkers.py ... checks of the control plane and of the objects
    placement.py         controllers that place diskless partitions, brokers in racks, operators
    placement_controller.py  ... the controllers, on a simulated quorum
    placement_checkers.py    ... checks of each decision, and of deadlines
    raft.py              the core of Raft and its driver, with its checkers
    chain.py             the core of chains, on simulated logs
    tiered_chain.py      ... the same, with logs that have a remote tier
    chain_log.py         ... a simulated log
    chain_oracle.py      ... a controller that cannot fail
    chain_epochs.py      ... reads of the newest epoch
    chain_nemesis.py     ... faults
    chain_checkers.py    ... checkers

Start with node.py.

Not here: what all worlds share (sim/world.py, sim/nemesis.py), clients (sim/workloads).
"""

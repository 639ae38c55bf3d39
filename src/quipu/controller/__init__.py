"""Cluster metadata: what exists, and how it may change.  Decides; does nothing.

    state         what is known: brokers, chains, topics, settings, producer ids
    members       the values it is made of, and how a partition follows from its chain
    records       the changes, as they are written to the metadata log
    possible      which of them fit the state that they meet; the others are left out
    brokers       register, fence, unfence, stop, unregister   (state, request) -> Decision
    chains        create, extend, promote; review              (state, request) -> Decision
    detached      partitions one of whose replicas has failed  (state, request) -> Decision
    reviewing     what becomes of members, given who is up: for chains and detached partitions
    elections     preferred heads, and unclean ones            (state, request) -> Decision
    reassignment  partitions that move between chains          (state, request) -> Decision
    topics        create, delete and extend topics             (state, request) -> Decision
    configs       alter settings                               (state, request) -> Decision
    internal_topics   what clients may not do to the cluster's own topics
    producer_ids  hand out blocks of producer ids              (state, request) -> Decision
    describe      settings as clients see them, with where each value comes from
    plausible     what another node may say was decided
    placement     which chain holds a topic

A decision is a list of records and an answer.  Whoever drives this room makes the records durable,
applies them to the state, and only then gives the answer.  `ClusterState.apply` is the only writer
of state, at run time and at replay alike, so what a node knows is a function of its log.

Not here: the log (storage), the order of decisions and the waiting (broker/cluster), time, chance.
"""

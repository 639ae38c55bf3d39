"""Requests about a cluster itself: its topics, groups, chains and its quorum.

    routing.py     sends a request to the nodes in turn until one carries it out; start here
    topics.py      create, describe, grow and delete topics; their settings
    configs.py     the settings of brokers
    partitions.py  delete records, elect leaders, move replicas
    groups.py      list, describe and delete groups; the offsets that they committed
    chains.py      Quipu's own: describe, create and extend chains of nodes
    migration.py   Quipu's own: topics on chains become diskless
    remote.py      Quipu's own: what the remote tier has of a partition
    placement.py   Quipu's own: how diskless partitions are placed, and the racks
    quorum.py      the nodes that elect the controller
    brokers.py     the brokers of the cluster

Every function takes a `Cluster`, blocks until the response has come, and returns plain values; an
error of the broker is raised as `BrokerRefused` with the broker's error code and message.

Not here: offsets of partitions (`Cluster`), commit of a group's offsets (`client.commit`).
"""

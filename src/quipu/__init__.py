"""Quipu: a Kafka-compatible, append-only log of typed record batches.

The rooms, from the ground up; a lower one never imports a higher one:

    model/       words: ids, errors, batch types, settings, the protocol of a partition; no I/O
    wire/        bytes: Kafka's messages, record batches, compression; no I/O
    runtime/     the world: clock, chance, disks, network, objects; nothing about Kafka
    storage/     the segmented log that keeps every durable thing of a node
    raft/        nodes agree on a log of commands; a core
    chain/       the replicas of a partition have the same records; a core
    remote/      segments of logs in object storage, and the metadata that finds them
    diskless/    topics without local logs: objects, and the control plane that orders them
    controller/  decides what the cluster's metadata becomes; a core
    client/      a blocking Kafka client: reads batches, asks for administration
    broker/      serves Kafka's protocol
    pipeline/    sources, views and sinks on Spark
    sim/         all of it under faults, in virtual time, decided by one seed
    launch/      starts and ends the processes of nodes
    bench/       how fast a broker is, beside how fast the machine is
    cli/         the `quipu` command
    __main__.py  the same command, for `python -m quipu`

Start with ARCHITECTURE.md, then the `__init__` of the room that you need.  Not here: deployment
(deploy/), tools of this repository (tools/).
"""

__version__ = "0.3.0"

"""Quipu: a Kafka-compatible, append-only log of typed record batches.

The rooms, from the ground up (a lower one never imports a higher one):

    model       words: ids, errors, batch types, settings; no I/O, no third parties
    wire        bytes: Kafka messages, record batches, compression; no I/O
    runtime     the world: clock, chance, disk, network; nothing about Kafka
    storage     the segmented log that keeps every durable thing of a node
    controller  decides what the cluster's metadata becomes; pure
    broker      serves Kafka's protocol
    cli         what people touch
"""

__version__ = "0.3.0"

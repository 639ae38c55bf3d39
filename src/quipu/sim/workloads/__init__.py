"""Clients in a simulated world, and the checker of the responses that they got.

    client.py               a Kafka client: real request frames over simulated connections
    traffic.py              producers, consumers, clients that create topics
    windowed_producer.py    an idempotent producer with several batches in flight, as librdkafka
    groups.py               groups that commit offsets and fetch them
    end_watch.py            a client that requests the end of a partition
    keyed.py                producers and readers of a compacted topic
    roaming.py              clients that move from broker to broker
    moving.py               a client that moves partitions to other nodes
    deleting.py             a client that deletes the first records of a partition
    history.py              the responses that clients got, and contradictions between them

Start with traffic.py.

Not here: faults (sim/nemesis.py), checks of stored logs (sim/worlds/node_checkers.py).
"""

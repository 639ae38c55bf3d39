"""Software of other makers that Quipu works with; `make interop` gets it, and runs these tests.

    servers.py              the servers that objects are stored on, as processes
    inherit.py              finds tests of other folders that can run here
    test_objects.py         the contract of object stores, large objects and errors, on each of them
    test_network.py         stores behind a wire that fails, on each of them
    test_segments.py        segments as objects, on each of them
    test_node.py            a node with its tier on each of them, killed while it copies
    kafka_server.py         a real Apache Kafka, of one node or several
    kafka_tools.py          runs Kafka's own command line tools
    test_kafka_tools.py     these tools on a topic with a tier
    test_alert_rules.py     the alert rules, as Prometheus itself reads and evaluates them

What is installed, and what happens where it cannot be, is in tools/interop.py.
"""

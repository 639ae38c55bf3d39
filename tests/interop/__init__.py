"""Software of other makers that Quipu works with; `make interop` gets it, and runs these tests.

    servers.py              the servers that objects are stored on, as processes
    inherit.py              finds tests of other folders that can run here
    test_objects.py         the contract of object stores, large objects and errors, on each of them
    test_network.py         stores behind a wire that fails, on each of them
    test_segments.py        segments as objects, on each of them
    test_node.py            a node with its tier on each of them, killed while it copies
    test_kafka_tools.py     Kafka's tools on a topic with a tier

The real thing beside Quipu: the same stories on both (brokers.py), in the same words.

    brokers.py              Kafka and Quipu, of one node and of three
    kafka_server.py         a real Apache Kafka, of one node or several
    kafka_tools.py          runs Kafka's own command line tools
    java_driver.py          runs Java programs in one JVM
    java/                   our Java programs: clients of every generation, a Streams application
    franz/, franz_client.py franz-go, as one of the clients of tests/e2e
    clients/, spark/        which jars are got for older clients and for Spark's connector
    software.py             where software is installed
    test_clients.py         franz-go, KafkaJS and the other clients of tests/e2e
    test_java_clients.py    Java producers and consumers of each protocol generation
    test_tools.py           Kafka's tools on one node
    test_tools_cluster.py   the same on three: replicas, log directories, quorum, reassignment
    test_tools_absent.py    the same for what a broker has none of: ACLs, quotas, transactions
    connect.py              starts Kafka Connect and MirrorMaker
    test_connect.py         Connect's file connectors
    test_mirror_maker.py    MirrorMaker between a Kafka and another broker, both ways
    test_streams.py         Kafka Streams, its state restored
    test_failover.py        Java's clients while each node of a chain is killed
    test_copied_settings.py settings of topics, copied from Quipu to Kafka and back
    test_spark.py           Spark's own Kafka connector, and our pipeline on a real Kafka
    test_alert_rules.py     the alert rules, as Prometheus itself reads and evaluates them

What is installed, and what happens where it cannot be, is in tools/interop.py.
"""

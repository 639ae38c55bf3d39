"""Settings of earlier versions of Kafka, which Kafka 4 does not know any more.

A broker of Kafka ignores them in its file; so does a node, with the same warning as for every other
setting without effect.  Each says why nobody misses it, or what to set instead.
"""

from typing import Final

from quipu.model.kafka_settings.rows import KafkaSetting, no_effect

EARLIER: Final[tuple[KafkaSetting, ...]] = (
    *no_effect(
        "Kafka dropped ZooKeeper in 4.0, and nodes here never used it: they find each other by "
        "controller.quorum.voters",
        """
        broker.id.generation.enable         boolean  true   read-only
        reserved.broker.max.id              int      1000   read-only
        zookeeper.connect                   string   null   read-only
        zookeeper.connection.timeout.ms     int      null   read-only
        zookeeper.max.in.flight.requests    int      10     read-only
        zookeeper.metadata.migration.enable boolean  false  read-only
        zookeeper.session.timeout.ms        int      18000  read-only
        zookeeper.set.acl                   boolean  false  read-only
        """),
    *no_effect(
        "Kafka dropped it in 4.0: versions are agreed on with each client",
        """
        inter.broker.protocol.version      string   null  read-only
        log.message.downconversion.enable  boolean  true  read-only
        log.message.format.version         string   null  read-only
        """),
    *no_effect(
        "Kafka dropped it in 4.0: set log.message.timestamp.before.max.ms and "
        "log.message.timestamp.after.max.ms",
        """
        log.message.timestamp.difference.max.ms  long  null  read-only
        """),
    *no_effect(
        "Kafka dropped it in 4.0: requests between nodes go through peer.listener",
        """
        control.plane.listener.name  string  null  read-only
        """),
    *no_effect(
        "Kafka dropped it in 4.0",
        """
        controlled.shutdown.max.retries       int      3       read-only
        controlled.shutdown.retry.backoff.ms  long     5000    read-only
        host.name                             string   null    read-only
        group.coordinator.new.enable          boolean  true    read-only
        offsets.commit.required.acks          short    -1      read-only
        password.encoder.iterations           int      4096    read-only
        password.encoder.key.length           int      128     read-only
        """),
)

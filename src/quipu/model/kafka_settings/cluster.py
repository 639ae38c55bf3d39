"""Kafka's settings of the controller, its quorum, and replication between brokers."""

from typing import Final

from quipu.model.kafka_settings.rows import KafkaSetting, no_effect, refused

CLUSTER: Final[tuple[KafkaSetting, ...]] = (
    *no_effect(
        "every change of the metadata is written at once",
        """
        controller.quorum.append.linger.ms  int:0..  25   read-only
        metadata.max.idle.interval.ms       int:0..  500  read-only
        """),
    *no_effect(
        "the quorum's times follow from controller.quorum.election.timeout.ms and "
        "controller.quorum.heartbeat.interval.ms",
        """
        controller.quorum.election.backoff.max.ms  int:0..  1000   read-only
        controller.quorum.fetch.timeout.ms         int:0..  2000   read-only
        controller.quorum.request.timeout.ms       int:0..  2000   read-only
        controller.quorum.retry.backoff.ms         int:0..  20     read-only
        controller.socket.timeout.ms               int      30000  read-only
        """),
    *no_effect(
        "voters are added by `quipu quorum add`, or by kafka-metadata-quorum",
        """
        controller.quorum.auto.join.enable  boolean  false  read-only
        """),
    *no_effect(
        "a node waits for the controller without a limit when it starts, and says what it waits "
        "for",
        """
        initial.broker.registration.timeout.ms  int       60000                read-only
        server.max.startup.time.ms  long:0..  9223372036854775807  read-only internal
        """),
    *no_effect(
        "the metadata's log is in log.dirs, and a snapshot is taken when it has grown enough",
        """
        internal.metadata.delete.delay.millis  long  60000  read-only internal
        internal.metadata.log.segment.bytes  int  null  read-only internal
        internal.metadata.max.batch.size.in.bytes  int  8388608  read-only internal
        internal.metadata.max.fetch.size.in.bytes  int  8388608  read-only internal
        metadata.log.dir                                 string    null        read-only
        metadata.log.max.record.bytes.between.snapshots  long:1..  20971520    read-only
        metadata.log.max.snapshot.interval.ms            long:0..  3600000     read-only
        metadata.log.segment.bytes                       int:8388608..  1073741824  read-only
        metadata.log.segment.ms                          long      604800000   read-only
        metadata.max.retention.bytes                     long      104857600   read-only
        metadata.max.retention.ms                        long      604800000   read-only
        """),
    *no_effect(
        "there is no log of slow operations of the controller",
        """
        controller.performance.always.log.threshold.ms  long:0..    2000   read-only internal
        controller.performance.sample.period.ms         long:100..  60000  read-only internal
        """),
    *no_effect(
        "batches are sent from node to node along a chain, as chain.window.bytes and "
        "chain.heartbeat.interval.ms say; no node fetches from another",
        """
        num.replica.fetchers                           int:1..  1         cluster-wide
        replica.fetch.backoff.ms                       int:0..  1000      read-only
        replica.fetch.max.bytes                        int:0..  1048576   read-only
        replica.fetch.min.bytes                        int      1         read-only
        replica.fetch.response.max.bytes               int:0..  10485760  read-only
        replica.fetch.wait.max.ms                      int      500       read-only
        replica.high.watermark.checkpoint.interval.ms  long     5000      read-only
        replica.socket.receive.buffer.bytes            int      65536     read-only
        replica.socket.timeout.ms                      int      30000     read-only
        """),
    *no_effect(
        "a node is in sync until it misses heartbeats for broker.session.timeout.ms, or leaves "
        "its chain",
        """
        replica.lag.time.max.ms  long  30000  read-only
        """),
    *no_effect(
        "a consumer that names its rack (client.rack) is always sent to the replica in that rack",
        """
        replica.selector.class  string  null  read-only
        """),
    *no_effect(
        "the first node in a partition's order that serves is its leader, always",
        """
        auto.leader.rebalance.enable             boolean   true  read-only
        leader.imbalance.check.interval.seconds  long:1..  300   read-only
        """),
    *no_effect(
        "only an unclean election that an operator requests may lose records",
        """
        unclean.leader.election.enable       boolean   false   cluster-wide
        unclean.leader.election.interval.ms  long:1..  300000  read-only internal
        """),
    *no_effect(
        "other nodes are reached through peer.listener, with peer.request.timeout.ms",
        """
        remote.log.metadata.manager.listener.name  string  null   read-only
        request.timeout.ms                         int     30000  read-only
        socket.connection.setup.timeout.max.ms     long    30000  read-only
        socket.connection.setup.timeout.ms         long    10000  read-only
        """),
    *no_effect(
        "a node accepts connections only when it can serve them",
        """
        early.start.listeners  list  null  read-only
        """),
    *refused(
        "the prefix of the settings of remote segments' metadata is fixed: write rlmm.config.NAME",
        """
        remote.log.metadata.manager.impl.prefix  string  rlmm.config.  read-only
        """),
)

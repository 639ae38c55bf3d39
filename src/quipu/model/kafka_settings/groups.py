"""Kafka's settings of consumer groups, share groups, Streams groups and transactions."""

from typing import Final

from quipu.model.kafka_settings.rows import KafkaSetting, no_effect

GROUPS: Final[tuple[KafkaSetting, ...]] = (
    *no_effect(
        "groups of the classic protocol alone are served: the settings of its sessions are "
        "group.min.session.timeout.ms and group.max.session.timeout.ms",
        """
        group.consumer.assignors                  list     uniform,range  read-only
        group.consumer.heartbeat.interval.ms      int:1..  5000           read-only
        group.consumer.max.heartbeat.interval.ms  int:1..  15000          read-only
        group.consumer.max.session.timeout.ms     int:1..  60000          read-only
        group.consumer.max.size                   int:1..  2147483647     read-only
        group.consumer.migration.policy           string   bidirectional  read-only
        group.consumer.min.heartbeat.interval.ms  int:1..  5000           read-only
        group.consumer.min.session.timeout.ms     int:1..  45000          read-only
        group.consumer.regex.refresh.interval.ms  int:10000..  600000  read-only internal
        group.consumer.session.timeout.ms         int:1..  45000          read-only
        group.coordinator.rebalance.protocols     list     classic,consumer,streams  read-only
        """),
    *no_effect(
        "this version has no share groups",
        """
        group.share.assignors                            list       simple     read-only
        group.share.delivery.count.limit                 int:2..10  5          read-only
        group.share.enable  boolean  false  read-only internal
        group.share.heartbeat.interval.ms                int:1..    5000       read-only
        group.share.initialize.retry.interval.ms  int:1..  30000  read-only internal
        group.share.max.heartbeat.interval.ms            int:1..    15000      read-only
        group.share.max.record.lock.duration.ms  int:30000..3600000  60000  read-only
        group.share.max.session.timeout.ms               int:1..    60000      read-only
        group.share.max.share.sessions                   int:1..    2000       read-only
        group.share.max.size                             int:1..1000  200        read-only
        group.share.min.heartbeat.interval.ms            int:1..    5000       read-only
        group.share.min.record.lock.duration.ms          int:1000..30000  15000      read-only
        group.share.min.session.timeout.ms               int:1..    45000      read-only
        group.share.partition.max.record.locks           int:100..10000  2000       read-only
        group.share.persister.class.name  string  \
            org.apache.kafka.server.share.persister.DefaultStatePersister  read-only internal
        group.share.record.lock.duration.ms  int:1000..3600000  30000  read-only
        group.share.session.timeout.ms                   int:1..    45000      read-only
        share.coordinator.append.linger.ms               int:-1..   -1         read-only
        share.coordinator.cold.partition.snapshot.interval.ms  int:1..  \
            300000  read-only internal
        share.coordinator.load.buffer.size               int:1..    5242880    read-only
        share.coordinator.snapshot.update.records.per.snapshot  int:0..  500  read-only
        share.coordinator.state.topic.compression.codec  int        0          read-only
        share.coordinator.state.topic.min.isr            short:1..  2          read-only
        share.coordinator.state.topic.num.partitions     int:1..    50         read-only
        share.coordinator.state.topic.prune.interval.ms  int:1..  300000  read-only internal
        share.coordinator.state.topic.replication.factor  short:1..  3          read-only
        share.coordinator.state.topic.segment.bytes      int:1..    104857600  read-only
        share.coordinator.threads                        int:1..    1          read-only
        share.coordinator.write.timeout.ms               int:1..    5000       read-only
        share.fetch.purgatory.purge.interval.requests    int        1000       read-only
        """),
    *no_effect(
        "this version has no groups of the Streams protocol; Streams applications use the classic "
        "one",
        """
        group.streams.heartbeat.interval.ms       int:1..  5000        read-only
        group.streams.initial.rebalance.delay.ms  int:0..  3000        read-only
        group.streams.max.heartbeat.interval.ms   int:1..  15000       read-only
        group.streams.max.session.timeout.ms      int:1..  60000       read-only
        group.streams.max.size                    int:1..  2147483647  read-only
        group.streams.max.standby.replicas        int:0..  2           read-only
        group.streams.min.heartbeat.interval.ms   int:1..  5000        read-only
        group.streams.min.session.timeout.ms      int:1..  45000       read-only
        group.streams.num.standby.replicas        int:0..  0           read-only
        group.streams.session.timeout.ms          int:1..  45000       read-only
        """),
    *no_effect(
        "this version has no transactions",
        """
        add.partitions.to.txn.retry.backoff.max.ms  int:0..    100        read-only
        add.partitions.to.txn.retry.backoff.ms      int:1..    20         read-only
        transaction.abort.timed.out.transaction.cleanup.interval.ms  int:1..  10000  read-only
        transaction.max.timeout.ms                  int:1..    900000     read-only
        transaction.partition.verification.enable   boolean    true       cluster-wide
        transaction.remove.expired.transaction.cleanup.interval.ms  int:1..  \
            3600000  read-only
        transaction.state.log.load.buffer.size      int:1..    5242880    read-only
        transaction.state.log.min.isr               int:1..    2          read-only
        transaction.state.log.num.partitions        int:1..    50         read-only
        transaction.state.log.replication.factor    short:1..  3          read-only
        transaction.state.log.segment.bytes         int:1..    104857600  read-only
        transaction.two.phase.commit.enable         boolean    false      read-only
        transactional.id.expiration.ms              int:1..    604800000  read-only
        """),
    *no_effect(
        "groups are written to their log as they change, and read from it in pieces of a fixed "
        "size",
        """
        group.coordinator.append.linger.ms  int:-1..  -1         read-only
        offsets.load.buffer.size            int:1..   5242880    read-only
        offsets.topic.compression.codec     int       0          read-only
        offsets.topic.segment.bytes         int:1..   104857600  read-only
        """),
    *no_effect(
        "a commit waits for its chain as long as request.max.wait.ms allows",
        """
        offsets.commit.timeout.ms  int:1..  5000  read-only
        """),
    *no_effect(
        "the topic of groups has as many replicas as its chain has nodes",
        """
        offsets.topic.replication.factor  short:1..  3  read-only
        """),
)

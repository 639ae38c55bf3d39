"""Kafka's types, defaults and update modes of the settings that have an effect here too.

What they do, and our defaults, are in broker_settings and topic_settings.
"""

from typing import Final

from quipu.model.kafka_settings.rows import KafkaSetting, honoured

HONOURED_BROKER: Final[tuple[KafkaSetting, ...]] = honoured("""
    advertised.listeners  list  null  read-only
    auto.create.topics.enable  boolean  true  read-only
    broker.heartbeat.interval.ms  int  2000  read-only
    broker.id  int  -1  read-only
    broker.rack  string  null  read-only
    broker.session.timeout.ms  int  9000  read-only
    compression.gzip.level  int:-1..9  -1  cluster-wide
    compression.lz4.level  int:1..17  9  cluster-wide
    compression.type  string  producer  cluster-wide
    compression.zstd.level  int:-131072..22  3  cluster-wide
    connections.max.idle.ms  long  600000  read-only
    controlled.shutdown.enable  boolean  true  read-only
    controller.listener.names  list  required  read-only
    controller.quorum.bootstrap.servers  list  ""  read-only
    controller.quorum.election.timeout.ms  int:0..  1000  read-only
    controller.quorum.voters  list  ""  read-only
    default.replication.factor  int  1  read-only
    delete.topic.enable  boolean  true  read-only
    fetch.max.bytes  int:1024..  57671680  read-only
    group.initial.rebalance.delay.ms  int  3000  read-only
    group.max.session.timeout.ms  int  1800000  read-only
    group.max.size  int:1..  2147483647  read-only
    group.min.session.timeout.ms  int  6000  read-only
    inter.broker.listener.name  string  null  read-only
    listener.security.protocol.map  string  \
        SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT  \
        per-broker
    listeners  list  PLAINTEXT://:9092  per-broker
    log.cleaner.backoff.ms  long:0..  15000  cluster-wide
    log.cleaner.dedupe.buffer.size  long  134217728  cluster-wide
    log.cleaner.delete.retention.ms  long:0..  86400000  cluster-wide
    log.cleaner.enable  boolean  true  read-only
    log.cleaner.io.max.bytes.per.second  double  1.7976931348623157E308  cluster-wide
    log.cleaner.max.compaction.lag.ms  long:1..  9223372036854775807  cluster-wide
    log.cleaner.min.cleanable.ratio  double  0.5  cluster-wide
    log.cleaner.min.compaction.lag.ms  long:0..  0  cluster-wide
    log.cleanup.policy  list  delete  cluster-wide
    log.dir  list  /tmp/kafka-logs  read-only
    log.dirs  list  null  read-only
    log.flush.interval.messages  long:1..  9223372036854775807  cluster-wide
    log.flush.interval.ms  long  null  cluster-wide
    log.index.interval.bytes  int:0..  4096  cluster-wide
    log.index.size.max.bytes  int:4..  10485760  cluster-wide
    log.local.retention.bytes  long:-2..  -2  cluster-wide
    log.local.retention.ms  long:-2..  -2  cluster-wide
    log.message.timestamp.after.max.ms  long:0..  3600000  cluster-wide
    log.message.timestamp.before.max.ms  long:0..  9223372036854775807  cluster-wide
    log.message.timestamp.type  string  CreateTime  cluster-wide
    log.retention.bytes  long  -1  cluster-wide
    log.retention.check.interval.ms  long:1..  300000  read-only
    log.retention.hours  int  168  read-only
    log.retention.minutes  int  null  read-only
    log.retention.ms  long  null  cluster-wide
    log.roll.hours  int:1..  168  read-only
    log.roll.ms  long  null  cluster-wide
    log.segment.bytes  int:1048576..  1073741824  cluster-wide
    max.connection.creation.rate  int:0..  2147483647  cluster-wide
    max.connections  int:0..  2147483647  cluster-wide
    max.connections.per.ip  int:0..  2147483647  cluster-wide
    max.connections.per.ip.overrides  string  ""  cluster-wide
    max.incremental.fetch.session.cache.slots  int:0..  1000  read-only
    max.request.partition.size.limit  int:1..  2000  read-only
    message.max.bytes  int:0..  1048588  cluster-wide
    min.insync.replicas  int:1..  1  cluster-wide
    node.id  int:0..  required  read-only
    num.partitions  int:1..  1  read-only
    offset.metadata.max.bytes  int  4096  read-only
    offsets.retention.check.interval.ms  long:1..  600000  read-only
    offsets.retention.minutes  int:1..  10080  read-only
    offsets.topic.num.partitions  int:1..  50  read-only
    process.roles  list  required  read-only
    producer.id.expiration.ms  int:1..  86400000  cluster-wide
    queued.max.request.bytes  long  -1  read-only
    remote.fetch.max.wait.ms  int:1..  500  cluster-wide
    remote.list.offsets.request.timeout.ms  long:1..  30000  cluster-wide
    remote.log.index.file.cache.total.size.bytes  long:1..  1073741824  cluster-wide
    remote.log.manager.copier.thread.pool.size  int:1..  10  cluster-wide
    remote.log.manager.copy.max.bytes.per.second  long:1..  \
        9223372036854775807  cluster-wide
    remote.log.manager.expiration.thread.pool.size  int:1..  10  cluster-wide
    remote.log.manager.fetch.max.bytes.per.second  long:1..  \
        9223372036854775807  cluster-wide
    remote.log.manager.task.interval.ms  long:1..  30000  read-only
    remote.log.manager.task.retry.backoff.max.ms  long:1..  30000  read-only internal
    remote.log.manager.task.retry.backoff.ms  long:1..  500  read-only internal
    remote.log.manager.task.retry.jitter  double  0.2  read-only internal
    remote.log.metadata.custom.metadata.max.bytes  int:0..  128  read-only
    remote.log.metadata.manager.class.name  string  \
        org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager  \
        read-only
    remote.log.metadata.manager.class.path  string  null  read-only
    remote.log.reader.max.pending.tasks  int:1..  100  read-only
    remote.log.reader.threads  int:1..  10  cluster-wide
    remote.log.storage.manager.class.name  string  null  read-only
    remote.log.storage.manager.class.path  string  null  read-only
    remote.log.storage.manager.impl.prefix  string  rsm.config.  read-only
    remote.log.storage.system.enable  boolean  false  read-only
    socket.request.max.bytes  int:1..  104857600  read-only
    """)

HONOURED_TOPIC: Final[tuple[KafkaSetting, ...]] = honoured("""
    cleanup.policy                   list       delete
    compression.gzip.level           int:-1..9  -1
    compression.lz4.level            int:1..17  9
    compression.type                 string     producer
    compression.zstd.level           int:-131072..22  3
    delete.retention.ms              long:0..   86400000
    file.delete.delay.ms             long:0..   60000
    flush.messages                   long:1..   9223372036854775807
    flush.ms                         long:0..   9223372036854775807
    follower.replication.throttled.replicas  list  ""
    index.interval.bytes             int:0..    4096
    leader.replication.throttled.replicas  list  ""
    local.retention.bytes            long:-2..  -2
    local.retention.ms               long:-2..  -2
    max.compaction.lag.ms            long:1..   9223372036854775807
    max.message.bytes                int:0..    1048588
    message.timestamp.after.max.ms   long:0..   3600000
    message.timestamp.before.max.ms  long:0..   9223372036854775807
    message.timestamp.type           string     CreateTime
    min.cleanable.dirty.ratio        double     0.5
    min.compaction.lag.ms            long:0..   0
    min.insync.replicas              int:1..    1
    preallocate                      boolean    false
    remote.log.copy.disable          boolean    false
    remote.log.delete.on.disable     boolean    false
    remote.storage.enable            boolean    false
    retention.bytes                  long       -1
    retention.ms                     long:-1..  604800000
    segment.bytes                    int:1048576..  1073741824
    segment.index.bytes              int:4..    10485760
    segment.jitter.ms                long:0..   0
    segment.ms                       long:1..   604800000
    unclean.leader.election.enable   boolean    false
    """)

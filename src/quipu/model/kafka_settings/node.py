"""Kafka's settings of threads, sockets, files, quotas and metrics of one broker."""

from typing import Final

from quipu.model.kafka_settings.rows import KafkaSetting, no_effect

NODE: Final[tuple[KafkaSetting, ...]] = (
    *no_effect(
        "one thread serves all clients; work that would block it runs in a few others of a fixed "
        "number",
        """
        background.threads                            int:1..  10    cluster-wide
        group.coordinator.threads                     int:1..  4     read-only
        log.cleaner.threads                           int:0..  1     cluster-wide
        num.io.threads                                int:1..  8     cluster-wide
        num.network.threads                           int:1..  3     cluster-wide
        num.recovery.threads.per.data.dir             int:1..  2     cluster-wide
        num.replica.alter.log.dirs.threads            int      null  read-only
        remote.log.manager.follower.thread.pool.size  int:1..  2     cluster-wide
        remote.log.manager.thread.pool.size           int:1..  2     read-only
        """),
    *no_effect(
        "a request that waits is removed when it is answered",
        """
        delete.records.purgatory.purge.interval.requests  int  1     read-only
        fetch.purgatory.purge.interval.requests     int  1000  read-only
        producer.purgatory.purge.interval.requests  int  1000  read-only
        """),
    *no_effect(
        "the operating system sizes the buffers of sockets",
        """
        socket.receive.buffer.bytes  int  102400  read-only
        socket.send.buffer.bytes     int  102400  read-only
        """),
    *no_effect(
        "the queue of connections that wait to be accepted has a fixed length",
        """
        socket.listen.backlog.size  int:1..  50  read-only
        """),
    *no_effect(
        "requests that wait are limited by their bytes: queued.max.request.bytes",
        """
        queued.max.requests  int:1..  500  read-only
        """),
    *no_effect(
        "rates are limited continuously, without windows of samples",
        """
        alter.log.dirs.replication.quota.window.num  int:1..  11  read-only
        alter.log.dirs.replication.quota.window.size.seconds  int:1..  1   read-only
        controller.quota.window.num                  int:1..  11  read-only
        controller.quota.window.size.seconds         int:1..  1   read-only
        quota.window.num                             int:1..  11  read-only
        quota.window.size.seconds                    int:1..  1   read-only
        remote.log.manager.copy.quota.window.num     int:1..  11  read-only
        remote.log.manager.copy.quota.window.size.seconds  int:1..  1   read-only
        remote.log.manager.fetch.quota.window.num    int:1..  11  read-only
        remote.log.manager.fetch.quota.window.size.seconds  int:1..  1   read-only
        replication.quota.window.num                 int:1..  11  read-only
        replication.quota.window.size.seconds        int:1..  1   read-only
        """),
    *no_effect(
        "files are removed at once; open reads keep their mapped bytes",
        """
        log.segment.delete.delay.ms  long:0..  60000  cluster-wide
        """),
    *no_effect(
        "space is allocated as segments grow",
        """
        log.preallocate  boolean  false  cluster-wide
        """),
    *no_effect(
        "closing a segment is cheap here",
        """
        log.roll.jitter.hours  int:0..  0     read-only
        log.roll.jitter.ms     long     null  cluster-wide
        """),
    *no_effect(
        "compaction reads and writes whole segments; log.cleaner.dedupe.buffer.size limits its "
        "memory",
        """
        log.cleaner.io.buffer.load.factor  double   0.9     cluster-wide
        log.cleaner.io.buffer.size         int:0..  524288  cluster-wide
        """),
    *no_effect(
        "recovery points are written every five seconds; log.flush.interval.ms says when records "
        "are flushed",
        """
        log.flush.offset.checkpoint.interval.ms  int:0..  60000  read-only
        log.flush.scheduler.interval.ms  long  9223372036854775807  read-only
        log.flush.start.offset.checkpoint.interval.ms  int:0..  60000  read-only
        log.initial.task.delay.ms  long:0..  30000  read-only internal
        """),
    *no_effect(
        "a node whose directory has failed asks to be replaced at once",
        """
        log.dir.failure.timeout.ms  long:1..  30000  read-only
        """),
    *no_effect(
        "expired producers are forgotten when a segment is closed or deleted",
        """
        producer.id.expiration.check.interval.ms  int:1..  600000  read-only internal
        """),
    *no_effect(
        "metrics are served at metrics.listener in the format of Prometheus",
        """
        kafka.metrics.polling.interval.secs  int:1..   10     read-only
        kafka.metrics.reporters              list      ""     read-only
        metric.reporters  list  org.apache.kafka.common.metrics.JmxReporter  cluster-wide
        metrics.num.samples                  int:1..   2      read-only
        metrics.recording.level              string    INFO   read-only
        metrics.sample.window.ms             long:1..  30000  read-only
        """),
    *no_effect(
        "clients are asked for no metrics",
        """
        telemetry.max.bytes  int:1..  1048576  read-only
        """),
    *no_effect(
        "versions that are not complete are never served",
        """
        unstable.api.versions.enable      boolean  false  read-only internal
        unstable.feature.versions.enable  boolean  false  read-only internal
        """),
)

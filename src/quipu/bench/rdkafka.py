"""The same loads through librdkafka, the client that most programs outside of Java use.

It makes batches itself, compresses, and calls back for every message that it could not deliver,
so these numbers include the cost of the client, which shares the machine with the broker.
"""

import time
from array import array
from dataclasses import dataclass, replace
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from quipu.bench.closed_loop import Window
from quipu.bench.errors import BenchError
from quipu.bench.measured import Latency, Measured
from quipu.bench.open_loop import RateMeasured
from quipu.bench.processes import cost_of
from quipu.launch.usage import ProcessUsage

FLUSH_SECONDS_MAX: Final = 60.0
CONSUME_COUNT: Final = 10_000  # messages of one call of `consume`
CHECK_EVERY: Final = 1_000  # messages between two looks at the clock
QUEUE_SIZE_MAX: Final = 64 << 10  # kilobytes that wait in the client

Settings = dict[str, Any]  # librdkafka takes texts, numbers and callbacks


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLoad:
    """The load, and the settings of the client."""

    bootstrap: str
    topic: str
    partitions: int
    value: bytes
    batch_size: int
    acks: int
    compression: str
    linger_ms: float = 5.0


class _Failures:
    """Keeps the error of the first delivery that failed."""

    def __init__(self) -> None:
        self.first: str | None = None

    def __call__(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None and self.first is None:
            self.first = error.str()

    def check(self, left: int) -> None:
        if self.first is not None or left:
            raise BenchError(f"librdkafka could not deliver: {self.first or f'{left} messages'}")


def run_produce(load: ClientLoad, window: Window) -> Measured:
    """Produce as fast as the client accepts messages; the time ends when all are delivered."""
    failures = _Failures()
    producer = Producer({**_producer(load), "delivery.report.only.error": True,
                         "on_delivery": failures})
    _fill(producer, load, time.perf_counter() + window.warmup_seconds)
    failures.check(producer.flush(FLUSH_SECONDS_MAX))
    before, cpu, started = _server(window), time.process_time(), time.perf_counter()
    count = _fill(producer, load, started + window.seconds)
    failures.check(producer.flush(FLUSH_SECONDS_MAX))
    seconds = time.perf_counter() - started
    return _measured(count, count * len(load.value), seconds, (before, _server(window)), cpu)


def run_consume(load: ClientLoad, window: Window) -> Measured:
    """Read every partition from its start, and again when its end is reached."""
    consumer = Consumer({
        "bootstrap.servers": load.bootstrap, "group.id": "quipu-bench",
        "enable.auto.commit": False, "auto.offset.reset": "earliest", "check.crcs": False,
        "enable.partition.eof": True, "fetch.message.max.bytes": 1 << 20,
        "queued.max.messages.kbytes": QUEUE_SIZE_MAX,
    })
    try:
        consumer.assign([TopicPartition(load.topic, each, 0) for each in range(load.partitions)])
        _take(consumer, time.perf_counter() + max(window.warmup_seconds, 0.5))
        before, cpu, started = _server(window), time.process_time(), time.perf_counter()
        count, size = _take(consumer, started + window.seconds)
        seconds = time.perf_counter() - started
        return _measured(count, size, seconds, (before, _server(window)), cpu)
    finally:
        consumer.close()


def run_at_rate(load: ClientLoad, rate: float, window: Window) -> RateMeasured:
    """Produce at fixed times; latency runs from when a message was due to its delivery report."""
    latencies: array[float] = array("d")
    failures = _Failures()
    producer = Producer(_producer(load))

    def delivered(due: float) -> Any:  # noqa: ANN401 what librdkafka calls back
        def call(error: KafkaError | None, message: Message) -> None:
            latencies.append(time.perf_counter() - due)
            failures(error, message)

        return call

    warmup_count = int(window.warmup_seconds * rate)
    count = warmup_count + int(window.seconds * rate)
    before, cpu = _server(window), time.process_time()
    started = time.perf_counter() + 0.05
    for index in range(count):
        due = started + index / rate
        while (wait := due - time.perf_counter()) > 0:
            producer.poll(wait)
        producer.produce(load.topic, load.value, on_delivery=delivered(due))
    failures.check(producer.flush(FLUSH_SECONDS_MAX))
    measured = _measured(count, count * len(load.value), count / rate,
                         (before, _server(window)), cpu)
    spread = Latency.of(latencies[warmup_count:])
    return RateMeasured(replace(measured, latency=spread), None)


def _producer(load: ClientLoad) -> Settings:
    return {
        "bootstrap.servers": load.bootstrap, "acks": load.acks, "linger.ms": load.linger_ms,
        "batch.size": load.batch_size, "batch.num.messages": 1_000_000,
        "compression.type": load.compression, "queue.buffering.max.kbytes": QUEUE_SIZE_MAX,
        "queue.buffering.max.messages": 1_000_000, "enable.idempotence": False,
        "message.max.bytes": max(1_000_000, load.batch_size),
    }


def _fill(producer: Producer, load: ClientLoad, end: float) -> int:
    produce, topic, value = producer.produce, load.topic, load.value
    count = 0
    while time.perf_counter() < end:
        for _ in range(CHECK_EVERY):
            try:
                produce(topic, value, partition=count % load.partitions)
            except BufferError:
                producer.poll(0.01)
            else:
                count += 1
        producer.poll(0)
    return count


def _take(consumer: Consumer, end: float) -> tuple[int, int]:
    count = size = 0
    while time.perf_counter() < end:
        for message in consumer.consume(CONSUME_COUNT, timeout=0.1):
            error = message.error()
            if error is None:
                count += 1
                size += len(message)
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 its public name
                _rewind(consumer, message)
            else:
                raise BenchError(f"librdkafka could not consume: {error.str()}")
    return count, size


def _rewind(consumer: Consumer, at_end: Message) -> None:
    topic, partition = at_end.topic(), at_end.partition()
    assert topic is not None
    assert partition is not None
    consumer.seek(TopicPartition(topic, partition, 0))


def _measured(
    count: int, size: int, seconds: float, server: tuple[ProcessUsage | None, ProcessUsage | None],
    cpu: float
) -> Measured:
    """A measurement without requests: librdkafka does not report their number."""
    before, after = server
    return Measured(
        seconds=seconds, requests=0, records=count, size=size, latency=None,
        server_cpu_seconds=after[0] - before[0] if before and after else None,
        server_resident_bytes=after[1] if after else None,
        generator_cpu_seconds=time.process_time() - cpu,
    )


def _server(window: Window) -> ProcessUsage | None:
    return None if window.server_pid is None else cost_of(window.server_pid)

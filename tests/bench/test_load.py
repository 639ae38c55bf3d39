"""Load generators against a broker whose behaviour is known, over real sockets."""

import time

import pytest

from quipu.bench.closed_loop import Window, run_fetch, run_produce
from quipu.bench.control import connect, create_led_topic, leaders, parse_address, produce_version
from quipu.bench.errors import BenchError
from quipu.bench.frames import ProduceBatch, ProduceFrame, fetch_frame, make_batch, produce_frame
from quipu.bench.measured import Latency
from quipu.bench.open_loop import run_at_rate
from quipu.bench.tail import run_tail
from quipu.client.admin.topics import delete_topic
from quipu.client.errors import NotServed
from tests.bench.fake_broker import FakeBroker, fake_broker

SHORT = Window(seconds=0.3, warmup_seconds=0.0)
BATCH = make_batch(record_size=100, batch_size=1000)


def ready(broker: FakeBroker, batch: ProduceBatch = BATCH, *, acks: int = 1) -> ProduceFrame:
    """A topic `t`, and a frame for it."""
    with connect(broker.address) as cluster:
        create_led_topic(cluster, "t", 1, {"retention.ms": "-1"})
    return produce_frame("t", 0, batch, acks=acks, version=9)


def test_the_control_connection_makes_and_removes_topics(broker: FakeBroker) -> None:
    """K5, K12: versions are negotiated; a topic gets its settings, and its leader is found."""
    with connect(broker.address) as cluster:
        found = create_led_topic(cluster, "t", 3, {"flush.messages": "1"})
        assert found == leaders(cluster, "t", 3) == [broker.address] * 3
        assert broker.configs["t"] == {"flush.messages": "1"}
        delete_topic(cluster, "t")
    assert broker.topics == {}


def test_a_broker_that_is_too_old_is_refused(broker: FakeBroker) -> None:
    """K12: what the broker does not speak is told before the load starts."""
    broker.versions[19] = (0, 1)
    with (
        connect(broker.address) as cluster,
        pytest.raises(NotServed, match="CreateTopics in versions 0 to 1, this client knows 2 to 7"),
    ):
        create_led_topic(cluster, "t", 1, {})


def test_a_broker_that_is_not_there_is_told() -> None:
    """K8: with what to do."""
    with fake_broker() as gone:
        address = gone.address
    with pytest.raises(BenchError, match=r"no broker at 127.*refused; start one with `quipu star"):
        connect(address)


def test_a_broker_whose_produce_is_too_old_is_told(broker: FakeBroker) -> None:
    """K12: the frames of the load are of certain versions."""
    broker.versions[0] = (0, 8)
    with connect(broker.address) as cluster, pytest.raises(BenchError, match=r"Produce up to v8"):
        produce_version(cluster)


@pytest.mark.parametrize("text", ["", "host", "host:", ":9092", "host:x", "host:0", "host:70000"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    """K8: bad flags get one clear message."""
    with pytest.raises(BenchError, match="is not HOST:PORT, for example localhost:9092"):
        parse_address(text)


@pytest.mark.parametrize("pipeline", [1, 7])
@pytest.mark.parametrize("connections", [1, 3])
def test_a_closed_loop_counts_what_the_broker_took(
    broker: FakeBroker, connections: int, pipeline: int
) -> None:
    """K2: requests, records and bytes agree with the broker's own count."""
    frame = ready(broker)
    found = run_produce([(broker.address, [frame])] * connections, pipeline, SHORT)

    assert 0 < found.requests <= broker.produced <= found.requests + connections * pipeline
    assert found.records == found.requests * BATCH.record_count
    assert found.size == found.requests * len(BATCH.data)
    assert found.latency is not None
    assert found.latency.count == found.requests
    assert found.latency.p50_us <= found.latency.p99_us <= found.latency.max_us


def test_a_large_batch_goes_out_in_pieces(broker: FakeBroker) -> None:
    """K2: a batch larger than the socket's buffer arrives whole, checksum and all."""
    frame = ready(broker, make_batch(record_size=100_000, batch_size=8 << 20))
    found = run_produce([(broker.address, [frame])], 4, SHORT)

    assert 0 < found.requests <= broker.produced


def test_unanswered_batches_are_sent_too(broker: FakeBroker) -> None:
    """V12: acks=0 has no answers; what the kernel took counts, and all of it arrives."""
    frame = ready(broker, acks=0)
    window = Window(seconds=5.0, warmup_seconds=0.0, size_max=200_000)
    found = run_produce([(broker.address, [frame])], 8, window)

    assert found.latency is None
    for _ in range(200):
        if broker.produced >= found.requests:
            break
        time.sleep(0.05)
    assert broker.produced >= found.requests > 100


def test_a_refused_batch_ends_the_run_with_the_reason(broker: FakeBroker) -> None:
    """K2: an error is no throughput."""
    frame = ready(broker)
    broker.produce_error = 10
    with pytest.raises(BenchError, match="refused a batch: MESSAGE_TOO_LARGE: as told"):
        run_produce([(broker.address, [frame])], 4, SHORT)


def test_a_broker_that_hangs_up_ends_the_run(broker: FakeBroker) -> None:
    """K8: a closed connection is told, not waited for."""
    frame = ready(broker)
    broker.hang_up_at = 3
    with pytest.raises(BenchError, match=r"(closed|broke) the connection"):
        run_produce([(broker.address, [frame])], 2, SHORT)


def test_a_consumer_reads_the_log_round_and_round(broker: FakeBroker) -> None:
    """K2: old data from the start to the end, then again; records are counted once per round."""
    frame = ready(broker)
    run_produce([(broker.address, [frame])], 4, Window(
        seconds=5, warmup_seconds=0, size_max=20 * len(BATCH.data)))
    fetch = fetch_frame("t", 0, size_max=3000)
    found = run_fetch([(broker.address, fetch)] * 2, 3000, SHORT)

    assert found.requests > 20
    assert found.size == found.records // BATCH.record_count * len(BATCH.data)


def test_every_consumer_at_the_tail_gets_every_batch(broker: FakeBroker) -> None:
    """K2: rounds in lock-step: what consumers got is batches times consumers."""
    frame = ready(broker)
    fetch = fetch_frame("t", 0, size_max=2000)
    found = run_tail(broker.address, frame, fetch, 4, SHORT)

    assert found.requests > 8
    assert abs(found.records - 4 * broker.produced * BATCH.record_count) <= (
        4 * BATCH.record_count)


def test_an_open_loop_keeps_its_rate_and_sees_every_record(broker: FakeBroker) -> None:
    """K2: as many requests as the rate says; each is seen by the consumer."""
    frame = ready(broker, make_batch(record_size=10, batch_size=1))
    fetch = fetch_frame("t", 0, size_max=1 << 20)
    found = run_at_rate(broker.address, frame, fetch, 200.0, Window(
        seconds=0.5, warmup_seconds=0.1))

    assert (found.produce.requests, broker.produced) == (100, 120)
    assert found.end_to_end is not None
    assert found.produce.latency is not None
    assert found.end_to_end.count == found.produce.latency.count == 100


def test_a_stall_is_charged_to_every_request_that_was_due(broker: FakeBroker) -> None:
    """K2: no coordinated omission: 0.4 s of silence at 200/s spoils some eighty requests."""
    frame = ready(broker, make_batch(record_size=10, batch_size=1))
    broker.stall_at, broker.stall_seconds = 50, 0.4
    found = run_at_rate(broker.address, frame, None, 200.0, Window(
        seconds=1.0, warmup_seconds=0.0))

    assert found.produce.latency is not None
    slow = [value for share, value in found.produce.latency.curve_us if share == 0.75]
    assert slow[0] > 50_000  # of 200 requests, eighty waited for up to 0.4 s
    assert found.produce.latency.max_us > 390_000


def test_percentiles_are_those_of_the_sorted_durations() -> None:
    """K2: a thousand durations of 1 to 1000 microseconds."""
    found = Latency.of([value / 1e6 for value in range(1000, 0, -1)])
    assert found is not None

    assert (round(found.p50_us), round(found.p99_us), round(found.p999_us)) == (501, 991, 1000)
    assert round(found.max_us) == 1000
    assert Latency.of([]) is None

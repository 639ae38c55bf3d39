"""The text of /metrics, read back by the parser of Prometheus' own Python client."""

import dataclasses
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from quipu.broker.observing import metrics
from quipu.broker.observing.metric_tables import (
    GAUGES,
    NET,
    NET_BY_REASON,
    REMOTE,
    STATS,
    TIER,
    TIERED_PARTITION,
)
from quipu.broker.observing.metrics import (
    ChainSample,
    GroupSample,
    LagSample,
    Sources,
    TierSample,
    TierTotals,
)
from quipu.broker.observing.stats import LATENCY_BOUNDS, Histogram, Stats
from quipu.model.errors import CorruptLog, QuipuError
from quipu.model.ids import Epoch, TopicPartition
from quipu.model.partition_log import ReplicationStatus
from quipu.runtime.net.limits import NetStats
from quipu.runtime.process import Usage, started_at, usage

DOCUMENT = Path(__file__).parents[3] / "docs/operating/metrics.md"
PARTITIONS_MANY = 10_000


@dataclass
class FakePartition:
    topic_partition: TopicPartition
    size_bytes: int = 100
    log_start_offset: int = 3
    log_end_offset: int = 10
    high_watermark: int = 9
    failure: QuipuError | None = None


def make_sources(**given: object) -> Sources:
    parts: dict[str, object] = {
        "stats": Stats(),
        "net": NetStats(),
        "usage": lambda: Usage(1.5, 2048, 7, 1024),
        "started_at": 1_700_000_000.0,
        "api_names": {0: "Produce", 1: "Fetch"},
    }
    return Sources(**{**parts, **given})  # type: ignore[arg-type]


def samples(sources: Sources) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample, as a Prometheus server would take it in."""
    text = "".join(metrics.exposition(sources))
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        for sample in family.samples:
            assert isinstance(sample, Sample)
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, f"twice: {key}"
            found[key] = sample.value
    return found


def test_every_counter_has_a_name_and_shows_its_value() -> None:
    """K9: whatever a node counts can be scraped; a field without a name fails here."""
    stats = Stats()
    net = NetStats()
    wanted = 1
    for numbers in (stats, net, stats.remote):
        for each in dataclasses.fields(numbers):
            if isinstance(getattr(numbers, each.name), int | float):
                setattr(numbers, each.name, wanted)
                wanted += 1

    net.refused["max.connections"] = 3
    net.closed["idle"] = 4
    stats.refusals["group.max.count"] = 5

    found = samples(make_sources(stats=stats, net=net))

    for table, numbers in ((NET, net), (STATS | GAUGES, stats), (REMOTE, stats.remote)):
        for attribute, family in table.items():
            assert found[family.name, ()] == getattr(numbers, attribute), attribute
    plain = [f.name for f in dataclasses.fields(stats) if isinstance(getattr(stats, f.name), int)]
    assert set(plain) <= set(STATS | GAUGES)
    assert {f.name for f in dataclasses.fields(stats.remote)} == set(REMOTE)
    assert {f.name for f in dataclasses.fields(net)} == set(NET | NET_BY_REASON)
    assert found["quipu_connections_refused_total", (("limit", "max.connections"),)] == 3
    assert found["quipu_connections_closed_total", (("reason", "idle"),)] == 4
    assert found["quipu_limit_refusals_total", (("limit", "group.max.count"),)] == 5


def test_request_latencies_are_cumulative_buckets_by_api() -> None:
    """K9: latency by API as a histogram; a bound counts in the bucket that it ends."""
    stats = Stats()
    for seconds in (0.00005, 0.001, 0.0011, 60.0):
        stats.observe_request(0, seconds)
    stats.observe_request(77, 0.2)
    stats.request_errors[0, 3] += 2
    stats.request_errors[0, 9999] += 1

    found = samples(make_sources(stats=stats))

    def bucket(bound: str) -> float:
        return found["quipu_request_seconds_bucket", (("api", "Produce"), ("le", bound))]

    assert [bucket(b) for b in ("0.0001", "0.001", "0.0025", "10.0", "+Inf")] == [1, 2, 3, 3, 4]
    assert found["quipu_request_seconds_count", (("api", "Produce"),)] == 4
    assert found["quipu_request_seconds_sum", (("api", "Produce"),)] == pytest.approx(60.00215)
    assert found["quipu_request_seconds_count", (("api", "77"),)] == 1
    labels = (("api", "Produce"), ("error", "UNKNOWN_TOPIC_OR_PARTITION"))
    assert found["quipu_request_errors_total", labels] == 2
    assert found["quipu_request_errors_total", (("api", "Produce"), ("error", "9999"))] == 1


@given(seconds=st.lists(st.floats(0, 100), max_size=50))
def test_a_histogram_counts_each_observation_once(seconds: list[float]) -> None:
    """K9: no observation is lost or counted twice, wherever it falls."""
    histogram = Histogram()
    for value in seconds:
        histogram.observe(value)

    assert histogram.count == len(seconds)
    assert histogram.seconds == pytest.approx(sum(seconds))
    for index, bound in enumerate(LATENCY_BOUNDS):
        assert sum(histogram.buckets[: index + 1]) == sum(value <= bound for value in seconds)


def test_the_remote_tier_shows_its_reads_its_cache_and_its_lags() -> None:
    """R15: what waits for the object store, in total and by partition, with Kafka's meanings."""
    totals = TierTotals(*range(1, len(TierTotals._fields) + 1))
    partition = TierSample("t", 3, *range(10, 10 + len(TIERED_PARTITION)))
    found = samples(make_sources(tier=lambda: totals, tiered=lambda: [partition]))

    assert set(TIER) == set(TierTotals._fields)
    for name, family in TIER.items():
        assert found[family.name, ()] == getattr(totals, name)
    labels = (("partition", "3"), ("topic", "t"))
    assert found["quipu_remote_log_size_bytes", labels] == 10
    for name, family in TIERED_PARTITION.items():
        assert found[family.name, labels] == getattr(partition, name)
    assert found["quipu_remote_reader_task_queue_size", ()] == 1


def test_chains_show_roles_lags_and_what_is_short() -> None:
    """K9, V21: a chain that lacks a node, or has halted, can be alerted on; chains of one are only
    counted.
    """
    alone = ReplicationStatus(
        "alone", Epoch(3), is_only_member=True, is_leader=True, is_under_replicated=False,
        is_under_min_isr=False, is_halted=False, lag=0, lag_after=0, in_flight_size=0)
    chains = [
        ChainSample("t", 0, alone),
        ChainSample("t", 1, alone._replace(
            role="leading", is_only_member=False, is_under_replicated=True, lag_after=5,
            in_flight_size=700)),
        ChainSample("t", 2, alone._replace(
            role="halted", is_only_member=False, is_leader=False, is_halted=True, lag=9)),
    ]

    found = samples(make_sources(chains=lambda: chains))

    assert found["quipu_partitions_leading", ()] == 2
    assert found["quipu_partitions_under_replicated", ()] == 1
    assert found["quipu_partitions_halted", ()] == 1
    labels = (("partition", "1"), ("topic", "t"))
    role = (("partition", "1"), ("role", "leading"), ("topic", "t"))
    assert found["quipu_chain_role", role] == 1
    assert found["quipu_chain_epoch", labels] == 3
    assert found["quipu_chain_successor_lag_records", labels] == 5
    assert found["quipu_chain_in_flight_bytes", labels] == 700
    assert found["quipu_chain_lag_records", (("partition", "2"), ("topic", "t"))] == 9
    assert ("quipu_chain_epoch", (("partition", "0"), ("topic", "t"))) not in found


def test_partitions_show_offsets_and_sizes_and_failed_ones_are_counted() -> None:
    """K9: a partition whose log could not be opened differs from an empty one."""
    partitions = [
        FakePartition(TopicPartition("orders", 0)),
        FakePartition(TopicPartition("orders", 1), failure=CorruptLog("bad batch at 17")),
    ]

    found = samples(make_sources(partitions=lambda: partitions))

    labels = (("partition", "0"), ("topic", "orders"))
    assert found["quipu_partition_size_bytes", labels] == 100
    assert found["quipu_partition_start_offset", labels] == 3
    assert found["quipu_partition_end_offset", labels] == 10
    assert found["quipu_partition_high_watermark", labels] == 9
    assert found["quipu_partitions", ()] == 2
    assert found["quipu_partitions_failed", ()] == 1
    assert ("quipu_partition_size_bytes", (("partition", "1"), ("topic", "orders"))) not in found


@given(name=st.text(max_size=20))
def test_any_group_name_survives_the_text_format(name: str) -> None:
    """K9, K8: a group's name is a client's choice and can neither break a scrape nor forge one."""
    if "\r" in name or "\0" in name:  # the oracle's parser splits at these, the format does not
        name = name.replace("\r", "").replace("\0", "")
    name = "".join(name.splitlines())
    sources = make_sources(
        groups=lambda: [GroupSample(name, "Stable", 2)],
        lags=lambda: [LagSample(name, "orders", 0, 5)],
    )

    found = samples(sources)

    assert found["quipu_group_members", (("group", name),)] == 2
    labels = (("group", name), ("partition", "0"), ("topic", "orders"))
    assert found["quipu_group_lag_records", labels] == 5
    assert found["quipu_groups", (("state", "Stable"),)] == 1


def test_a_newline_in_a_label_is_escaped() -> None:
    """K9: the one character that ends a sample."""
    text = "".join(
        metrics.exposition(make_sources(groups=lambda: [GroupSample("a\nb", "Dead", 0)]))
    )

    assert 'group="a\\nb"' in text


def test_ten_thousand_partitions_are_scraped_in_small_pieces() -> None:
    """K9: a scrape of a large node holds the loop for a few milliseconds at a time."""
    partitions = [
        FakePartition(TopicPartition(f"topic-{index // 10}", index % 10))
        for index in range(PARTITIONS_MANY)
    ]
    pieces = []
    longest = 0.0
    begun = turn = time.thread_time()  # of the processor: others may have the machine meanwhile
    for piece in metrics.exposition(make_sources(partitions=lambda: partitions)):
        pieces.append(piece)
        longest = max(longest, time.thread_time() - turn)
        turn = time.thread_time()
    whole = time.thread_time() - begun

    size = sum(map(len, pieces))
    print(f"{size} bytes in {whole * 1e3:.1f} ms, longest turn {longest * 1e3:.2f} ms")
    assert max(piece.count("\n") for piece in pieces) <= metrics.PIECE_LINES_MAX + 2
    assert sum(piece.count("\nquipu_partition_size_bytes{") for piece in pieces) > 0
    assert whole < 2.0  # measured 60 ms


def test_the_process_tells_about_itself() -> None:
    """K9: CPU, memory, files and start time under the names that dashboards expect."""
    found = samples(make_sources(usage=usage, started_at=started_at()))

    assert found["process_resident_memory_bytes", ()] > 1 << 20
    assert 0 < found["process_open_fds", ()] < found["process_max_fds", ()]
    assert found["process_cpu_seconds_total", ()] > 0
    assert time.time() - 3600 < found["process_start_time_seconds", ()] <= time.time()


def test_the_documentation_has_the_table_of_metrics() -> None:
    """K9: docs/operating/metrics.md is made from the code (`make docs` rewrites it)."""
    assert metrics.reference() in DOCUMENT.read_text()

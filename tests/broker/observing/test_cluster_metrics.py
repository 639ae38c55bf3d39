"""Whether the cluster takes writes, as every node's metrics and health tell it."""

from collections.abc import Iterable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from quipu.broker.observing import cluster_metrics
from quipu.broker.observing.cluster_metrics import (
    ChainStateSample,
    ClusterSample,
    cluster_lines,
    offline_pages,
    under_min_isr,
)
from quipu.controller.topic_requests import NewTopic
from quipu.model.chains import MemberState
from tests.controller.states import stop
from tests.controller.test_topics import with_topics


def values(lines: Iterable[str]) -> dict[tuple[str, ...], float]:
    """The samples of some lines, by name and values of labels."""
    return {(sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families("".join(lines))
            for sample in family.samples}


def test_a_chain_without_a_leader_is_shown_by_its_name() -> None:
    """K9, V5: on every node; and how many members are in which state."""
    members = {MemberState.SERVING: 1, MemberState.SYNCING: 0, MemberState.OFFLINE: 2}
    found = values(cluster_lines([ClusterSample(
        is_lease_held=True, offline_pages=iter([3, 4]),
        chains=[ChainStateSample("a", True, members), ChainStateSample("b", False, members)])]))

    assert found["quipu_lease_held",] == 1
    assert (found["quipu_chain_has_leader", "a"], found["quipu_chain_has_leader", "b"]) == (1, 0)
    assert found["quipu_chain_members", "b", "offline"] == 2
    assert found["quipu_partitions_offline",] == 7


def test_partitions_that_refuse_writes_are_counted_and_some_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """K9, V21: as many lines as a scrape should have, and the whole number."""
    monkeypatch.setattr(cluster_metrics, "PARTITIONS_SHOWN_MAX", 2)
    found = values(under_min_isr([("t", 0), ("t", 1), ("u", 0)]))

    assert found["quipu_partitions_under_min_isr",] == 3
    assert [key for key in found if key[0] == "quipu_partition_under_min_isr"] == [
        ("quipu_partition_under_min_isr", "t", "0"), ("quipu_partition_under_min_isr", "t", "1")]


@pytest.mark.parametrize("page", [1, 1000])
def test_partitions_without_a_leader_are_counted_from_metadata(
    monkeypatch: pytest.MonkeyPatch, page: int,
) -> None:
    """K9: those of a chain whose head is down; all of them for a node that cannot know."""
    monkeypatch.setattr(cluster_metrics, "PAGE_PARTITIONS", page)
    state = with_topics(NewTopic("t", 1, 1), NewTopic("u", 1, 1), a=1, b=1)

    assert sum(offline_pages(state, is_lease_held=True)) == 0
    assert sum(offline_pages(state, is_lease_held=False)) == 2
    stop(state, 1)
    assert sum(offline_pages(state, is_lease_held=True)) == 1

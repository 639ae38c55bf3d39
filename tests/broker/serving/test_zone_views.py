"""Diskless partitions as clients in zones are shown them, by Metadata and its relatives."""

import random
from types import ModuleType
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.broker.handlers import k03_metadata, k75_describe_topic_partitions
from quipu.broker.observing.metrics import Sources, Stats, exposition
from quipu.broker.observing.samples import zone_samples
from quipu.broker.serving import forwarding, topic_views
from quipu.broker.serving.context import Broker, Context
from quipu.broker.serving.response_budget import ResponseBudget
from quipu.broker.serving.zone_views import NOWHERE, projected, replica_in
from quipu.controller.reassignment import Reassignment
from quipu.controller.state import ClusterState
from quipu.controller.topic_requests import NewTopic
from quipu.controller.topic_state import PartitionState
from quipu.model.ids import NO_NODE, NodeId
from quipu.model.listeners import DEFAULT, ClientListener, SecurityProtocol
from quipu.model.settings import BrokerSettings
from quipu.model.settings_sources import broker_settings, from_assignments
from quipu.runtime.net.limits import NetStats
from quipu.wire.messages import RESPONSES
from quipu.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from quipu.wire.messages.k75_describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from quipu.wire.schema import Request
from tests.broker.clusters import ABroker, MemoryLog, a_broker, a_cluster, versions
from tests.broker.serving.zones import create, fence, move, register
from tests.looped import looped

OUTSIDE = ClientListener("OUTSIDE", SecurityProtocol.PLAINTEXT)
View = tuple[int, list[int], list[int], list[int]]  # leader, replicas, ISR, offline


async def in_three_zones(map_of_listeners: str = "") -> ABroker:
    """Broker 1 in the zone unknown, 2 and 5 in b, 3 in c; t-0 on 1, 2 and 3, t-1 on 3 and 1."""
    assignments = [f"diskless.client.az.listener.map={map_of_listeners}"]
    broker = await a_broker(NewTopic("classic"), settings=broker_settings(
        from_assignments(assignments)) if map_of_listeners else BrokerSettings())
    state = broker.cluster.state
    for node_id, rack in ((2, "b"), (3, "c"), (5, "b")):
        register(state, node_id, rack, listeners=(DEFAULT.name, "OUTSIDE"))
    create(state, "t", [1, 2, 3], [3, 1])
    return broker


async def ask(
    broker: ABroker, handler: ModuleType, request: Request, version: int, client_id: str | None,
    *, listener: ClientListener = DEFAULT,
) -> Any:
    """The bytes of a response to a client with this id."""
    budget = ResponseBudget(broker.response_budgets, RESPONSES[request.KEY], version)
    context = Context(version, 7, client_id, "::1", budget, listener)
    sent = forwarding.decode_request(
        cast("Broker", broker), request.KEY, request.encode(version), version)
    return (await handler.handle(cast("Broker", broker), sent, context)).encode(version)


async def metadata(
    broker: ABroker, client_id: str | None, version: int = 12, *,
    listener: ClientListener = DEFAULT, topic: str = "t",
) -> list[View]:
    """The partitions of a topic by Metadata."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    data = await ask(broker, k03_metadata, request, version, client_id, listener=listener)
    (found,) = MetadataResponse.decode(data, version).topics
    return [(each.leader_id, each.replica_nodes, each.isr_nodes, each.offline_replicas)
            for each in found.partitions]


async def described(broker: ABroker, client_id: str | None) -> tuple[bool, list[View]]:
    """Whether t is diskless, and its partitions, by DescribeTopicPartitions."""
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")])
    data = await ask(broker, k75_describe_topic_partitions, request, 0, client_id)
    (found,) = RESPONSES[request.KEY].decode(data, 0).topics  # type: ignore[attr-defined]
    return found.is_diskless, [
        (each.leader_id, each.replica_nodes, each.isr_nodes, each.offline_replicas)
        for each in found.partitions]


EVERYTHING: list[View] = [(1, [1, 2, 3], [1, 2, 3], []), (3, [3, 1], [3, 1], [])]
ONLY = {node_id: (node_id, [node_id], [node_id], list[int]()) for node_id in (1, 2, 3, 5)}


@pytest.mark.parametrize("version", versions(MetadataRequest))
@looped
async def test_a_client_is_shown_the_replica_in_its_zone(version: int) -> None:
    """D23: it alone, in every version; without one there, all that the controller has placed."""
    broker = await in_three_zones()

    assert await metadata(broker, "x", version) == EVERYTHING
    assert await metadata(broker, None, version) == EVERYTHING
    assert await metadata(broker, "diskless_az=b", version) == [ONLY[2], EVERYTHING[1]]
    assert await metadata(broker, "diskless_az=c-0", version) == [ONLY[3], ONLY[3]]
    assert await metadata(broker, "diskless_az=unknown", version) == [ONLY[1], ONLY[1]]
    assert await metadata(broker, "diskless_az=d", version) == EVERYTHING


@looped
async def test_descriptions_of_partitions_follow_the_zone_too() -> None:
    """D23, D24: DescribeTopicPartitions shows what Metadata shows, and that t is diskless."""
    broker = await in_three_zones()
    for client_id in ("x", "diskless_az=b", "diskless_az=c", "diskless_az=d"):
        assert await described(broker, client_id) == (True, await metadata(broker, client_id))


@looped
async def test_the_listener_says_the_zone() -> None:
    """D22: of clients whose id says none."""
    broker = await in_three_zones("OUTSIDE:b,PLAINTEXT:c")

    assert await metadata(broker, "x", listener=OUTSIDE) == [ONLY[2], EVERYTHING[1]]
    assert await metadata(broker, "x") == [ONLY[3], ONLY[3]]
    assert await metadata(broker, "diskless_az=c", listener=OUTSIDE) == [ONLY[3], ONLY[3]]


@looped
async def test_two_replicas_in_a_zone_are_one() -> None:
    """D23: the leader if it is one of them, else the first."""
    broker = await in_three_zones()
    state = broker.cluster.state
    move(state, "t", 0, [1, 5, 2])
    assert (await metadata(broker, "diskless_az=b"))[0] == ONLY[5]
    move(state, "t", 0, [2, 5, 1])
    assert (await metadata(broker, "diskless_az=b"))[0] == ONLY[2]
    fence(state, 2)
    assert (await metadata(broker, "diskless_az=b"))[0] == ONLY[5]
    partition = state.topics["t"].partitions[0]
    near = frozenset({NodeId(2), NodeId(5)})
    assert [replica_in(partition._replace(replicas=(NodeId(5), NodeId(2)), leader=NodeId(leader)),
                       near) for leader in (5, 2, 1, NO_NODE)] == [5, 2, 5, 5]


@looped
async def test_a_broker_without_the_listener_is_not_shown() -> None:
    """D23, broker.serving.Z3: the cross-zone view serves those who cannot reach their zone's."""
    broker = await in_three_zones()
    register(broker.cluster.state, 2, "b")  # without OUTSIDE
    register(broker.cluster.state, 1, None, listeners=(DEFAULT.name, "OUTSIDE"))

    assert (await metadata(broker, "diskless_az=b"))[0] == ONLY[2]
    assert (await metadata(broker, "diskless_az=b", listener=OUTSIDE))[0] == EVERYTHING[0]


@looped
async def test_views_follow_the_metadata_that_is_applied() -> None:
    """D25: fenced, back, moved, and in another rack; nothing old is shown, nothing too early."""
    broker = await in_three_zones()
    state = broker.cluster.state
    zone_b, zone_c = "diskless_az=b", "diskless_az=c"
    assert (await metadata(broker, zone_b))[0] == ONLY[2]
    fence(state, 2)
    assert (await metadata(broker, zone_b))[0] == (1, [1, 2, 3], [1, 2, 3], [2])
    fence(state, 2, fenced=False)
    assert (await metadata(broker, zone_b))[0] == ONLY[2]
    register(state, 2, "c")
    assert (await metadata(broker, zone_b))[0] == EVERYTHING[0]
    assert (await metadata(broker, zone_c))[0] == ONLY[2]
    move(state, "t", 0, [1, 5])
    assert (await metadata(broker, zone_b))[0] == ONLY[5]
    assert (await metadata(broker, zone_c))[0] == (1, [1, 5], [1, 5], [])


@pytest.mark.parametrize("seed", range(3))
@looped
async def test_kept_views_are_what_new_ones_would_be(seed: int) -> None:
    """D25: after any change of brokers and placements, in every zone; who stands in is live."""
    broker, rng = await in_three_zones(), random.Random(seed)
    state = broker.cluster.state
    for _ in range(60):
        node_id = rng.choice((2, 3, 5))
        match rng.randrange(3):
            case 0:
                register(state, node_id, rng.choice((None, "b", "c")))
            case 1:
                fence(state, node_id, fenced=not state.brokers[NodeId(node_id)].fenced)
            case _:
                move(state, "t", rng.randrange(2), rng.sample((1, 2, 3, 5), rng.randint(1, 3)))
        for zone in ("b", "c", "unknown", "none"):
            kept = await metadata(broker, f"diskless_az={zone}")
            views, broker.cluster.views = broker.cluster.views, topic_views.TopicViews()
            assert kept == await metadata(broker, f"diskless_az={zone}")
            broker.cluster.views = views
            for index, (leader, replicas, isr, _) in enumerate(kept):
                placed = state.topics["t"].partitions[index]
                if (leader, replicas) == (placed.leader, list(placed.replicas)):
                    continue
                assert replicas == isr == [leader]
                assert leader in placed.replicas
                known = state.brokers[NodeId(leader)]
                assert (known.fenced, known.rack or "unknown") == (False, zone)


@looped
async def test_a_placement_is_shown_when_it_is_committed() -> None:
    """D25, broker.serving.Z3: while its records are on their way to the log, the old one is."""
    broker = ABroker(cluster=await a_cluster(log=(log := MemoryLog())))
    broker.cluster.follow(broker.partitions)
    state = broker.cluster.state
    register(state, 2, "b")
    create(state, "t", [1])
    seen: list[list[View]] = []

    async def look() -> None:
        seen.append(await metadata(broker, "diskless_az=b"))
        seen.append(await metadata(broker, "x"))

    log.before_append = look
    await broker.cluster.controller.alter_reassignments(
        [Reassignment("t", 0, [2])])
    assert seen == [[ONLY[1]], [ONLY[1]]]
    assert await metadata(broker, "diskless_az=b") == [ONLY[2]]


@looped
async def test_made_up_zones_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """D22, broker.serving.Z1: a view is kept for each zone that has brokers, and for no other."""
    broker = await in_three_zones("OUTSIDE:nobody")
    made = 0
    make = topic_views._partition

    def counted(*arguments: Any) -> Any:
        nonlocal made
        made += 1
        return make(*arguments)

    monkeypatch.setattr(topic_views, "_partition", counted)
    for number in range(300):
        await metadata(broker, f"diskless_az=made-up-{number}")
        await metadata(broker, f"diskless_az=b-{number}")
        await metadata(broker, f"{number}")
        await metadata(broker, "diskless_az=nobody")
    assert made == 2 * 2  # two views of two partitions
    assert len(broker.cluster.views._views) == 2


@looped
async def test_classic_topics_are_the_same_in_every_zone() -> None:
    """D23: byte for byte, and kept once for all of them."""
    broker = await in_three_zones()
    request = MetadataRequest(topics=[MetadataRequestTopic(name="classic")])
    for version in versions(MetadataRequest):
        plain = await ask(broker, k03_metadata, request, version, "x")
        for zone in ("b", "c", "unknown"):
            assert plain == await ask(
                broker, k03_metadata, request, version, f"diskless_az={zone}")
    assert len(broker.cluster.views._views) == len(versions(MetadataRequest))


@pytest.mark.parametrize("version", versions(MetadataRequest))
def test_diskless_is_a_tag_that_others_do_not_have(version: int) -> None:
    """D24: one tagged field from v12 on; all other bytes stay what they were."""
    classic, diskless = (
        MetadataResponse(topics=[MetadataResponseTopic(name="t", is_diskless=each)]).encode(version)
        for each in (False, True))
    if version < 12:
        assert diskless == classic
        return
    after = b"\0" if version == 12 else b"\0\0\0"  # what follows the topic
    head = classic.removesuffix(b"\0" + after)  # it has no tagged field
    assert len(head) == len(classic) - 1 - len(after)
    assert diskless == head + b"\x01\x64\x01\x01" + after  # one: number 100, 1 byte, true


@looped
async def test_metadata_says_which_topics_are_diskless() -> None:
    """D24: from v12 on."""
    broker = await in_three_zones()
    for version in versions(MetadataRequest)[1:]:
        data = await ask(broker, k03_metadata, MetadataRequest(topics=None), version, "x")
        found = MetadataResponse.decode(data, version).topics
        assert {each.name: each.is_diskless for each in found} == {
            "classic": False, "t": version >= 12}


@looped
async def test_the_ratio_of_hits_is_counted_by_topic() -> None:
    """D27: of partitions shown to clients with a zone, from kept views too; no others count."""
    broker = await in_three_zones()
    assert list(zone_samples(cast("Broker", broker))) == []
    for client_id in ("x", None, "diskless_az=d"):
        await metadata(broker, client_id)
        await metadata(broker, client_id, topic="classic")
    assert list(zone_samples(cast("Broker", broker))) == []
    for _ in range(2):
        await metadata(broker, "diskless_az=b")  # one of two
        await metadata(broker, "diskless_az=c")  # both
    assert list(zone_samples(cast("Broker", broker))) == [("t", 0.75)]
    text = "".join(exposition(Sources(
        stats=Stats(), net=NetStats(), zones=lambda: zone_samples(cast("Broker", broker)))))
    assert 'kafka_broker_diskless_preferred_broker_hit_ratio{topic="t"} 0.75\n' in text


# -- the projection alone, over any state


@st.composite
def clusters(draw: st.DrawFn) -> ClusterState:
    """Brokers in zones, some of them fenced, and a topic on some of them, or on ones long gone."""
    state = ClusterState()
    for node_id in range(1, draw(st.integers(1, 6)) + 1):
        register(state, node_id, draw(st.sampled_from([None, "a", "b"])),
                 fenced=draw(st.booleans()))
    some = st.lists(st.integers(1, 7), min_size=1, max_size=4, unique=True)
    create(state, "t", *draw(st.lists(some, min_size=1, max_size=3)))
    return state


@given(state=clusters(), zone=st.sampled_from(["a", "b", "unknown", "c"]), data=st.data())
@settings(max_examples=300)
def test_a_projection_is_a_filter(
    state: ClusterState, zone: str, data: st.DataObject
) -> None:
    """D23, broker.serving.Z3: one live replica of the zone, or the partition as it is."""
    near = frozenset(each.node_id for each in state.brokers.values()
                     if not each.fenced and (each.rack or "unknown") == zone)
    for placed in state.topics["t"].partitions:
        leaders = st.sampled_from(placed.replicas) | st.sampled_from([NO_NODE, *state.brokers])
        before: PartitionState = placed._replace(leader=data.draw(leaders))
        after = projected(before, near)
        candidates = [each for each in before.replicas if each in near]
        if not candidates:
            assert after == before
            continue
        want = before.leader if before.leader in candidates else candidates[0]
        assert (after.leader, after.replicas, after.isr) == (want, (want,), (want,))
        assert after._replace(leader=before.leader, replicas=before.replicas,
                              isr=before.isr) == before
        assert projected(after, near) == after
        assert replica_in(before, NOWHERE) == NO_NODE

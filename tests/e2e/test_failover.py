"""What every stock client lives through when the head of a chain is killed: it leads the partitions
that they write, and coordinates their groups.
"""

import gc
import json
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from tests.e2e.conftest import MAKE, ON_CHAIN, PARTITIONS
from tests.e2e.contract import Client, Member, Message, wait_until
from tests.e2e.test_clients import RECORDS, assert_same, messages
from tests.harness.cluster import RunningCluster

pytestmark = [
    ON_CHAIN,
    # Some libraries leave sockets to the garbage collector when a node refuses connections.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

TAKES_ALL_AT_ONCE = ("KafkaJS", "kcat")  # their programs are given messages when they start
GOES_ON_SECONDS_MAX = 15.0  # detection takes 1.5 s, a client's own patience the rest


@pytest.fixture(params=list(MAKE))
def client(request: pytest.FixtureRequest, cluster: RunningCluster) -> Client:
    """Every client in turn."""
    return MAKE[request.param](cluster.bootstrap)


@pytest.fixture
def kill_head(cluster: RunningCluster) -> Iterator[Callable[[], None]]:
    """Kills whoever is first in the chain; when the test is over it is back."""
    killed = []

    def kill() -> None:
        killed.append(next(iter(cluster.states("a"))))
        cluster[killed[-1]].kill()

    cluster.await_serving("a")
    yield kill
    for name in killed:
        cluster[name].start()
    cluster.await_serving("a")
    gc.collect()  # see above: here, not in a test that has nothing to do with it


class Interrupted(list[Message]):
    """Messages between which something happens, once somebody who goes through them is halfway."""

    def __init__(self, given: Sequence[Message], happens: Callable[[], None]) -> None:
        super().__init__(given)
        self._happens = happens

    def __iter__(self) -> Iterator[Message]:
        for index, message in enumerate(super().__iter__()):
            if index == len(self) // 2:
                self._happens()
            yield message


def test_an_idempotent_producer_goes_on_when_the_head_is_killed(
    cluster: RunningCluster, client: Client, topic: str, kill_head: Callable[[], None]
) -> None:
    """K1, V21: all is acknowledged, and is there once and in order."""
    cluster.create_topic(topic, partitions=PARTITIONS)
    written = messages("across")
    given: Sequence[Message] = Interrupted(written, kill_head)
    if client.name in TAKES_ALL_AT_ONCE:
        kill_head()
        given = written

    client.produce(topic, given, compression="none", idempotent=True)

    assert_same(client.consume(topic, len(written)), written)


def test_a_group_goes_on_when_its_coordinator_is_killed(
    cluster: RunningCluster, client: Client, topic: str, kill_head: Callable[[], None]
) -> None:
    """K3, V21: two members read on within a bounded time; what the group had committed stays."""
    cluster.create_topic(topic, partitions=PARTITIONS)
    group = f"group-of-{topic}"
    members = [client.member(group, topic), client.member(group, topic)]
    try:
        wait_until(lambda: sum(len(member.assigned) for member in members) == PARTITIONS
                   and all(member.assigned for member in members), "one each", members)
        client.produce(topic, messages("before"), compression="none", idempotent=False)
        wait_until(lambda: len(_values(members, "before")) == RECORDS, "all is read", members)
        kill_head()
        client.produce(topic, messages("after"), compression="none", idempotent=True)
        written = time.monotonic()
        wait_until(lambda: len(_values(members, "after")) == RECORDS, "the rest is read", members)
        taken = time.monotonic() - written
        print(f"{client.name}: went on {taken:.1f} s after all was written")
        assert taken < GOES_ON_SECONDS_MAX
        # aiokafka's close() never ends while it looks for its coordinator.
        wait_until(lambda: _lag(cluster, group) == 0, "all is committed", members)
        for member in members:
            member.stop()
        client.produce(topic, messages("late"), compression="none", idempotent=False)
        members.append(client.member(group, topic))
        wait_until(lambda: len(_values(members[2:], "late")) == RECORDS, "it resumes", members[2:])
        assert len(members[2].records) == RECORDS, "what was committed is not read again"
    finally:
        for member in members:
            member.kill()


def _lag(cluster: RunningCluster, group: str) -> int:
    """How many records the group has not committed: 0 once all members know the coordinator."""
    lag: int = json.loads(cluster.quipu("group", "describe", group, "--json"))["lag"]
    return lag


def _values(members: Sequence[Member], label: str) -> set[str]:
    return {record.value for member in members for record in member.records
            if record.value.startswith(label)}

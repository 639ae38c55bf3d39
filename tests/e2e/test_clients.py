"""The stories that every stock client must be able to live through; see contract.py."""

import time

import pytest

from tests.e2e.conftest import PARTITIONS, Place
from tests.e2e.contract import COMPRESSIONS, Client, Member, Message, wait_until
from tests.e2e.evidence import idempotent_producers

RECORDS = 30


def messages(label: str, count: int = RECORDS) -> list[Message]:
    """Messages over all partitions, with keys and headers, large enough to be worth compressing."""
    return [
        Message(value=f"{label}-{index}-" + "knot " * 40, key=f"key-{index % 5}",
                headers=(("label", label),), partition=index * PARTITIONS // count)
        for index in range(count)
    ]


def in_partition(found: list[Message], partition: int) -> list[Message]:
    return [message for message in found if message.partition == partition]


def assert_same(found: list[Message], written: list[Message]) -> None:
    """All that was written, in order within each partition, at offsets without holes."""
    for partition in range(PARTITIONS):
        got, want = in_partition(found, partition), in_partition(written, partition)
        assert [each.content for each in got] == [each.content for each in want]
        assert [each.offset for each in got] == list(range(len(want)))


def test_a_created_topic_is_described(client: Client, topic: str) -> None:
    """K1, K5: a client creates a topic (kcat: by asking for it) and sees its partitions."""
    client.create_topic(topic, PARTITIONS, {})

    assert client.partition_count(topic) == PARTITIONS


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_records_come_back_as_they_were_written(
    client_of_one: Client, topic: str, compression: str
) -> None:
    """K1, K2, V19: keys, values, headers and order survive, whatever the compression."""
    client = client_of_one
    client.create_topic(topic, PARTITIONS, {})
    written = messages(compression)

    client.produce(topic, written, compression=compression, idempotent=False)

    assert_same(client.consume(topic, len(written)), written)


def test_idempotent_producers_write_once(
    place: Place, client: Client, topic: str
) -> None:
    """K1, K2: a producer with an id and sequences is served; two runs append one after another,
    and the partition knows both producers.
    """
    client.create_topic(topic, PARTITIONS, {})
    first, second = messages("first"), messages("second")

    client.produce(topic, first, compression="lz4", idempotent=True)
    client.produce(topic, second, compression="none", idempotent=True)

    found = client.consume(topic, len(first) + len(second))
    by_partition = [each for partition in range(PARTITIONS)
                    for each in in_partition(first, partition) + in_partition(second, partition)]
    assert_same(found, by_partition)
    known = idempotent_producers(place.nodes, topic)
    assert len({producer.producer_id for producer in known}) >= 2
    last = len(in_partition(first, 0)) - 1
    assert all(producer.last_sequence <= last for producer in known)
    assert any(producer.last_sequence >= 0 for producer in known)


def test_offsets_are_found_by_time(client: Client, topic: str) -> None:
    """K1, K2: the first offset at or after a time; none past the last record."""
    client.create_topic(topic, PARTITIONS, {})
    for index in range(3):
        client.produce(topic, [Message(value=f"at {index}")], compression="none", idempotent=False)
        time.sleep(0.005)  # so that no two records have one timestamp
    times = [message.timestamp for message in client.consume(topic, 3)]
    assert times[0] < times[1] < times[2]

    assert client.offset_for_time(topic, times[0] - 1) == 0
    assert client.offset_for_time(topic, times[1]) == 1
    assert client.offset_for_time(topic, times[1] + 1) == 2
    assert client.offset_for_time(topic, times[2] + 1) is None


def test_readers_seek_to_offsets(client_of_one: Client, topic: str) -> None:
    """K1, K2: from an offset within a batch, and from one of a later batch, to the end."""
    client = client_of_one
    client.create_topic(topic, PARTITIONS, {})
    written = in_partition(messages("first") + messages("second"), 0)
    client.produce(topic, written[: RECORDS // 2], compression="gzip", idempotent=False)
    client.produce(topic, written[RECORDS // 2 :], compression="none", idempotent=False)

    for offset in (3, len(written) - 2):
        found = client.read_from(topic, offset, len(written) - offset)
        assert [each.offset for each in found] == list(range(offset, len(written)))
        assert [each.content for each in found] == [each.content for each in written[offset:]]


def test_configs_are_described_and_altered(admin: Client, topic: str) -> None:
    """K1, K5: what was given at creation is described; what is altered is described too."""
    admin.create_topic(topic, PARTITIONS, {"retention.ms": "3600000"})
    before = admin.configs(topic)
    assert before["retention.ms"] == "3600000"
    assert before["cleanup.policy"] == "delete"

    admin.alter_config(topic, "max.message.bytes", "123456")

    assert admin.configs(topic)["max.message.bytes"] == "123456"


def test_a_group_shares_loses_a_member_and_resumes(client: Client, topic: str) -> None:
    """K1, K3: two members share the partitions; one is killed and the other takes all; a third
    one resumes where the group committed.
    """
    client.create_topic(topic, PARTITIONS, {})
    group = f"group-of-{topic}"
    members: list[Member] = []
    try:
        members = [client.member(group, topic), client.member(group, topic)]
        _share(client, topic, members)
        survivor = _lose_one(client, topic, members)
        survivor.stop()
        _resume(client, topic, group, members)
    finally:
        for member in members:
            member.kill()


def _share(client: Client, topic: str, members: list[Member]) -> None:
    wait_until(lambda: all(len(member.assigned) == 1 for member in members)
               and members[0].assigned != members[1].assigned, "one partition each", members)

    client.produce(topic, messages("shared"), compression="none", idempotent=False)
    wait_until(lambda: sum(len(member.records) for member in members) >= RECORDS,
               "everything read", members)
    assert all({record.partition for record in member.records} == set(member.assigned)
               for member in members)


def _lose_one(client: Client, topic: str, members: list[Member]) -> Member:
    victim, survivor = members
    victim.kill()
    client.produce(topic, messages("after the kill"), compression="none", idempotent=False)
    wait_until(lambda: len(survivor.assigned) == PARTITIONS, "the survivor has all", [survivor])
    wait_until(lambda: len(_values(survivor, "after the kill")) == RECORDS, "it reads all",
               [survivor])
    return survivor


def _resume(client: Client, topic: str, group: str, members: list[Member]) -> None:
    client.produce(topic, messages("resumed"), compression="none", idempotent=False)
    late = client.member(group, topic)
    members.append(late)
    wait_until(lambda: len(_values(late, "resumed")) == RECORDS, "the late one reads the rest",
               [late])
    assert len(late.records) == RECORDS, "it read what the group had committed"


def _values(member: Member, label: str) -> set[str]:
    return {record.value for record in member.records if record.value.startswith(label)}

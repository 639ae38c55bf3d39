"""The comparison finds what differs: a planted difference in any field of any response."""

import random
from typing import Any
from uuid import UUID

import pytest

from quipu.model.errors import Code
from quipu.wire.layout import layout
from quipu.wire.messages import OWN_KEY_FIRST, RESPONSES
from quipu.wire.messages.k00_produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from quipu.wire.messages.k01_fetch import FetchableTopicResponse, FetchResponse, PartitionData
from quipu.wire.messages.k03_metadata import MetadataResponse, MetadataResponseTopic
from quipu.wire.record_batch import Record, encode_batch
from quipu.wire.schema import Response, Struct
from tests.differential.both import Both, Twins, for_side
from tests.differential.comparing import _NULL_IS_EMPTY, RULES, Comparison, Difference, Rule
from tests.differential.connections import CLOSED
from tests.differential.explained import EXPLANATIONS, explanation
from tests.differential.filling import fill
from tests.differential.world import World

KEYS = [key for key in RESPONSES if key < OWN_KEY_FIRST]


class _Full(World):
    """A world whose arrays have one element each."""

    def several(self, most: int = 3) -> int:
        return 1

    def chance(self, probability: float) -> bool:
        return probability == 0.2  # tagged fields are there, and nothing is null


def full_response(key: int, version: int) -> Response:
    """A response with one element in every array, and small values."""
    made: Response = for_side(fill(_Full(1), RESPONSES[key], version), 1)
    return made


def planted(struct: Struct, version: int, path: str = "") -> list[tuple[str, Any, str]]:
    """Every plain field of a response: its path, the struct that has it, and its name."""
    places = []
    for slot in (*layout(type(struct), version).plain, *layout(type(struct), version).tagged):
        value = getattr(struct, slot.name)
        own = f"{path}.{slot.name}" if path else slot.name
        if slot.is_struct:
            for each in value if slot.is_array else [value]:
                if each is not None:
                    places += planted(each, version, f"{own}[]" if slot.is_array else own)
        else:
            places.append((own, struct, slot.name))
    return places


def another(value: Any) -> Any:
    """A value that is not the same, under any rule but FREE."""
    match value:
        case bool():
            return not value
        case int():
            return -7 if value >= 0 else 9
        case str():
            return f"{value}-planted"
        case bytes():
            return value + b"planted"
        case UUID():
            return UUID(int=0)
        case list():
            return [*value, *value, *value] or [7]
        case None:
            return "planted"
    raise AssertionError(value)


@pytest.mark.parametrize("key", KEYS)
def test_a_wrong_field_is_found_wherever_it_is(key: int) -> None:
    """K1: in each version of each response, each field in turn has another value on one side."""
    versions = RESPONSES[key].VERSIONS
    for version in (versions[0], versions[-1]):
        missed = []
        for number, (path, _, name) in enumerate(planted(full_response(key, version), version)):
            kafka, quipu = full_response(key, version), full_response(key, version)
            assert Comparison().differences(version, kafka, quipu) == []
            _, struct, _ = planted(quipu, version)[number]
            value = getattr(struct, name)
            if isinstance(value, memoryview) or name in _NULL_IS_EMPTY or (
                    value is None and name == "records"):
                continue
            setattr(struct, name, another(value))
            rule = RULES.get(f"{type(struct).__name__}.{name}", RULES.get(name))
            found = Comparison().differences(version, kafka, quipu)
            if not found and rule not in (Rule.FREE, Rule.ID, Rule.SIZE):
                missed.append(path)
        assert missed == [], f"v{version}"


def test_an_id_stands_for_the_same_thing_for_ever() -> None:
    """K1: ids are paired when they first appear; another pairing later is a difference."""
    twins = Twins()

    assert twins.are_same("topic_id", "k1", "q1")
    assert twins.are_same("topic_id", "k1", "q1")
    assert twins.are_same("member_id", "k1", "q2"), "another kind"
    assert not twins.are_same("topic_id", "k1", "q2")
    assert not twins.are_same("topic_id", "k2", "q1")


def metadata(*names: str, topic_id: int = 1) -> MetadataResponse:
    return MetadataResponse(topics=[
        MetadataResponseTopic(name=name, topic_id=UUID(int=topic_id + number))
        for number, name in enumerate(names)])


def test_the_order_of_topics_does_not_matter_but_their_number_does() -> None:
    """K1: Kafka promises no order; a topic more, or twice, is a difference."""
    compare = Comparison().differences

    assert compare(12, metadata("a", "b"), MetadataResponse(topics=[
        MetadataResponseTopic(name="b", topic_id=UUID(int=2)),
        MetadataResponseTopic(name="a", topic_id=UUID(int=1))])) == []
    assert compare(9, metadata("a", "b"), metadata("a")) == [
        Difference("topics[]", "present", "absent")]
    assert compare(9, metadata("a"), metadata("a", "a")) == [
        Difference("topics[]", "absent", "present")]


def produced(code: int, offset: int) -> ProduceResponse:
    return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[
        PartitionProduceResponse(index=0, error_code=code, base_offset=offset)])])


def test_values_are_told_as_classes() -> None:
    """K1: so that one kind of difference is one row, whatever the offsets of a run are."""
    found = Comparison().differences(9, produced(0, 17), produced(Code.CORRUPT_MESSAGE, -1))

    assert found == [
        Difference("responses[].partition_responses[].error_code", "NONE", "CORRUPT_MESSAGE"),
        Difference("responses[].partition_responses[].base_offset", "n", "-1")]
    assert Comparison().differences(9, produced(0, 17), produced(0, 18)) == [
        Difference("responses[].partition_responses[].base_offset", "n", "another n")]
    assert Comparison().differences(9, produced(0, 17), CLOSED) == [
        Difference("", "a response", "the connection is closed")]


def fetched(*batches: bytes) -> FetchResponse:
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[
        PartitionData(partition_index=0, records=memoryview(b"".join(batches)))])])


def batch(value: bytes, **header: int) -> bytes:
    return bytes(encode_batch([Record(b"k", value, timestamp=5)], **header))


def test_records_are_compared_batch_by_batch() -> None:
    """K1: leader epochs are relative; a batch less is a difference unless a limit was asked for."""
    comparison = Comparison()
    comparison.first_epochs = Both(0, 1)
    one, two = batch(b"1", leader_epoch=0), batch(b"2", leader_epoch=0, base_offset=1)
    same = batch(b"1", leader_epoch=1)

    assert comparison.differences(9, fetched(one), fetched(same)) == []
    assert comparison.differences(9, fetched(one), fetched(batch(b"x", leader_epoch=1)))
    assert comparison.differences(9, fetched(one, two), fetched(same))
    assert comparison.differences(9, fetched(one, two), fetched(same), limited=True) == []
    assert comparison.differences(9, fetched(one, two[:-3]), fetched(same)) == [], "a cut batch"


def test_a_request_is_made_for_each_side() -> None:
    """K1: what the brokers call by different names is different in the two requests."""
    request = metadata("a")
    request.topics[0].name = Both("theirs", "ours")  # type: ignore[assignment]  # resolved below

    assert for_side(request, 0).topics[0].name == "theirs"
    assert for_side(request, 1).topics[0].name == "ours"


def test_only_what_a_row_names_is_explained() -> None:
    """K1: another API, path or value is not."""
    row = next(each for each in EXPLANATIONS if each.api == "DeleteGroups")
    fits = Difference("results[].error_code", "NONE", "GROUP_ID_NOT_FOUND")

    assert explanation(42, 2, fits) is row
    assert explanation(0, 9, fits) is None
    assert explanation(42, 2, fits._replace(kafka="NON_EMPTY_GROUP")) is None
    assert explanation(42, 2, fits._replace(path="error_code")) is None


def test_the_same_seed_is_the_same_run() -> None:
    """K1: so that a difference can be looked at again."""
    first, second = (World(7) for _ in range(2))

    assert [first.topic() for _ in range(50)] == [second.topic() for _ in range(50)]
    assert isinstance(first.dice, random.Random)

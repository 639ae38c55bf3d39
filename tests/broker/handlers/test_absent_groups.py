"""Transactions, share groups and streams groups, of which there are none, as in Kafka."""


from types import ModuleType
from typing import Any

import pytest

from quipu.broker.handlers import (
    k65_describe_transactions,
    k66_list_transactions,
    k77_share_group_describe,
    k89_streams_group_describe,
    k90_describe_share_group_offsets,
    k91_alter_share_group_offsets,
    k92_delete_share_group_offsets,
)
from quipu.controller.topic_requests import NewTopic
from quipu.model.errors import Code
from quipu.model.ids import ZERO_UUID
from quipu.wire.messages.k65_describe_transactions import DescribeTransactionsRequest
from quipu.wire.messages.k66_list_transactions import ListTransactionsRequest
from quipu.wire.messages.k77_share_group_describe import ShareGroupDescribeRequest
from quipu.wire.messages.k89_streams_group_describe import StreamsGroupDescribeRequest
from quipu.wire.messages.k90_describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from quipu.wire.messages.k91_alter_share_group_offsets import AlterShareGroupOffsetsRequest
from quipu.wire.messages.k92_delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from quipu.wire.schema import Request
from tests.broker.clusters import a_broker, ask, versions
from tests.looped import looped


async def asked(handler: ModuleType, request: Request, version: int | None = None) -> Any:
    last = type(request).VERSIONS[-1]
    return await ask(await a_broker(), handler, request, last if version is None else version)


@looped
async def test_no_transactional_id_is_known() -> None:
    """K12: kafka-transactions describe says so; not that the client lacks a right."""
    response = await asked(
        k65_describe_transactions, DescribeTransactionsRequest(transactional_ids=["a", "a", ""]))

    assert [(each.transactional_id, each.error_code) for each in response.transaction_states] == [
        ("a", Code.TRANSACTIONAL_ID_NOT_FOUND), ("a", Code.TRANSACTIONAL_ID_NOT_FOUND),
        ("", Code.INVALID_REQUEST)]


@pytest.mark.parametrize("version", versions(ListTransactionsRequest))
@looped
async def test_the_list_of_transactions_is_empty(version: int) -> None:
    """K12: with the states that do not exist, as Kafka tells."""
    response = await asked(k66_list_transactions, ListTransactionsRequest(
        state_filters=["Ongoing", "Nope"], producer_id_filters=[7]), version)

    assert (response.error_code, response.transaction_states) == (Code.NONE, [])
    assert response.unknown_state_filters == ["Nope"]


@pytest.mark.parametrize(("pattern", "code"), [
    ("a.*", Code.NONE), ("", Code.NONE), ("[a", Code.INVALID_REGULAR_EXPRESSION),
    ("a" * 1001, Code.INVALID_REGULAR_EXPRESSION)])
@looped
async def test_a_pattern_of_transactional_ids_is_checked(pattern: str, code: Code) -> None:
    """K8, K12: and one that is too long is not even tried."""
    response = await asked(
        k66_list_transactions, ListTransactionsRequest(transactional_id_pattern=pattern))

    assert response.error_code == code


@pytest.mark.parametrize(("handler", "request_"), [
    (k77_share_group_describe, ShareGroupDescribeRequest(group_ids=["g", "g", ""])),
    (k89_streams_group_describe, StreamsGroupDescribeRequest(group_ids=["g", "g", ""])),
], ids=["share", "streams"])
@looped
async def test_no_share_and_streams_group_is_known(handler: ModuleType, request_: Request) -> None:
    """K12: GROUP_ID_NOT_FOUND, so that tools say that there is no such group."""
    response = await asked(handler, request_)

    assert [(each.group_id, each.error_code) for each in response.groups] == [
        ("g", Code.GROUP_ID_NOT_FOUND), ("g", Code.GROUP_ID_NOT_FOUND),
        ("", Code.INVALID_GROUP_ID)]
    assert all(each.authorized_operations == -(1 << 31) for each in response.groups)


@pytest.mark.parametrize("version", versions(DescribeShareGroupOffsetsRequest))
@looped
async def test_no_share_group_has_offsets(version: int) -> None:
    """K12: partitions that are named have none; a group of which all are asked for is unknown."""
    broker = await a_broker(NewTopic("t"))
    named = [DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=[0])
             for name in ("t", "nope")]
    response = await ask(broker, k90_describe_share_group_offsets, DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=named),
                DescribeShareGroupOffsetsRequestGroup(group_id="h", topics=None)]), version)

    first, second = response.groups
    assert [(topic.topic_name, topic.topic_id, topic.partitions[0].start_offset)
            for topic in first.topics] == [
        ("t", broker.cluster.state.topics["t"].topic_id, -1), ("nope", ZERO_UUID, -1)]
    assert (first.error_code, second.error_code) == (Code.NONE, Code.GROUP_ID_NOT_FOUND)


@pytest.mark.parametrize("group_id", ["g", ""])
@looped
async def test_offsets_of_share_groups_cannot_be_changed(group_id: str) -> None:
    """K12: there is no such group."""
    code = Code.GROUP_ID_NOT_FOUND if group_id else Code.INVALID_GROUP_ID
    for handler, request in (
            (k91_alter_share_group_offsets, AlterShareGroupOffsetsRequest(group_id=group_id)),
            (k92_delete_share_group_offsets, DeleteShareGroupOffsetsRequest(group_id=group_id))):
        response = await asked(handler, request)
        assert (response.error_code, response.responses) == (code, [])
        assert response.error_message

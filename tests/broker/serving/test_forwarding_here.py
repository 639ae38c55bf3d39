"""Requests to the controller on the controller's own node: the same way, at no cost of its own."""

from typing import cast

import pytest

from quipu.broker.cluster.controller_server import ControllerServer
from quipu.broker.serving import forwarding
from quipu.broker.serving.context import Broker, Context
from quipu.model.errors import Code
from quipu.wire.messages.k19_create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tests.broker.clusters import a_broker
from tests.looped import looped


@looped
async def test_the_controller_s_own_request_takes_the_same_way_and_is_decoded_once(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """K5: through the controller's server, as from any node; the loop is held for one decoding."""
    broker = cast("Broker", await a_broker())
    request = CreateTopicsRequest(timeout=5000, topics=[
        CreatableTopic(name="t", num_partitions=2, replication_factor=-1)])
    served: list[int] = []
    handle = ControllerServer.handle

    async def counted(server: ControllerServer, sender, asked):  # noqa: ANN001, ANN202 as `handle`
        served.append(sender)
        return await handle(server, sender, asked)

    monkeypatch.setattr(ControllerServer, "handle", counted)
    monkeypatch.setattr(forwarding, "decode_request", None)  # a call of it fails

    response = await forwarding.forward(broker, forwarding.ClientRequest(
        request, request.encode(7), Context(7, 1, "c", "::1")))

    assert isinstance(response, forwarding.ForwardedResponse)
    (created,) = CreateTopicsResponse.decode(response.body, 7).topics
    assert (created.error_code, created.num_partitions) == (Code.NONE, 2)
    assert served == [broker.cluster.node_id]

"""InitProducerId in every version."""

import pytest

from quipu.broker.handlers import k22_init_producer_id
from quipu.model.errors import Code
from quipu.wire.messages.k22_init_producer_id import InitProducerIdRequest
from tests.broker.clusters import a_broker, ask, versions
from tests.looped import looped


@pytest.mark.parametrize("version", versions(InitProducerIdRequest))
@looped
async def test_every_producer_gets_an_id_of_its_own(version: int) -> None:
    """K2, K12: idempotent producers never share an id."""
    broker = await a_broker()
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout=60_000)

    responses = [await ask(broker, k22_init_producer_id, request, version) for _ in range(3)]

    assert [response.error_code for response in responses] == [Code.NONE] * 3
    assert [response.producer_epoch for response in responses] == [0] * 3
    assert len({response.producer_id for response in responses}) == 3
    assert all(response.producer_id >= 0 for response in responses)


@looped
async def test_a_producer_that_asks_for_a_new_epoch_gets_a_new_id() -> None:
    """K2: from v3 on; epoch 0 of a new id is newer than any epoch of the old one."""
    broker = await a_broker()
    request = InitProducerIdRequest(transactional_id=None, producer_id=77, producer_epoch=3)

    response = await ask(broker, k22_init_producer_id, request, 4)

    assert (response.error_code, response.producer_epoch) == (Code.NONE, 0)
    assert response.producer_id != 77


REFUSED = [
    ("transactions are not served", InitProducerIdRequest(transactional_id="t"),
     Code.UNSUPPORTED_VERSION),
    ("an empty transactional id", InitProducerIdRequest(transactional_id=""), Code.INVALID_REQUEST),
    ("an id without its epoch", InitProducerIdRequest(transactional_id=None, producer_id=5),
     Code.INVALID_REQUEST),
    ("an epoch without its id", InitProducerIdRequest(transactional_id=None, producer_epoch=5),
     Code.INVALID_REQUEST),
]


@pytest.mark.parametrize(("why", "request_", "code"), REFUSED, ids=[case[0] for case in REFUSED])
@looped
async def test_what_cannot_be_served_is_refused(
    why: str, request_: InitProducerIdRequest, code: Code
) -> None:
    """K12: with an error that clients do not retry."""
    response = await ask(await a_broker(), k22_init_producer_id, request_, 5)

    assert (response.error_code, response.producer_id, response.producer_epoch) == (code, -1, -1)

"""InitProducerId — API key 22, versions 0-5.

Behaviour
    * an idempotent producer gets a new id that no other client can guess, with epoch 0
    * a producer that has an id and asks for a newer epoch (v3+) gets a new id with epoch 0, which
      has the same effect: no batch that it sent before can be appended after one that it sends now
    * transactions are not served yet: a transactional id is refused with UNSUPPORTED_VERSION from
      v5 on, before with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, the only code that librdkafka does
      not retry; clients meet the refusal of FindCoordinator first, which has words
Versions
    v2  flexible      v3  the producer may name its id and epoch      v4  PRODUCER_FENCED
    v5  TRANSACTION_ABORTABLE
"""


from typing import Final

from quipu.broker.serving.context import Broker, Context
from quipu.broker.serving.transactions import transaction_refusal
from quipu.model.errors import Code
from quipu.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse

STOPS_AT_ANY_SINCE: Final = 5  # clients of these versions stop at any error code


async def handle(
    broker: Broker, request: InitProducerIdRequest, context: Context
) -> InitProducerIdResponse:
    code = _refusal(broker, request, context)
    if code is not Code.NONE:
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    producer_id = await broker.cluster.new_producer_id()
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refusal(broker: Broker, request: InitProducerIdRequest, context: Context) -> Code:
    if request.transactional_id is not None:
        if not request.transactional_id:
            return Code.INVALID_REQUEST
        broker.limited.warning(
            "transactions", "client %s wants transactional id %r; transactions are not served yet",
            context.client_id, request.transactional_id)
        return transaction_refusal(context.api_version, STOPS_AT_ANY_SINCE)
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        return Code.INVALID_REQUEST
    return Code.NONE

"""InitProducerId — API key 22, versions 0-6.

Behaviour
    * an idempotent producer gets a new id that no other client can guess, with epoch 0
    * a producer that has an id and asks for a newer epoch (v3+) gets a new id with epoch 0, which
      has the same effect: no batch that it sent before can be appended after one that it sends now
    * transactions are not served yet: a transactional id is refused with
      TRANSACTIONAL_ID_AUTHORIZATION_FAILED, the one code that no client retries; librdkafka retries
      UNSUPPORTED_VERSION and INVALID_REQUEST for ever
Versions
    v2  flexible      v3  the producer may name its id and epoch      v4  PRODUCER_FENCED
    v5  TRANSACTION_ABORTABLE      v6  two-phase commit
"""


from quipu.broker.serving.context import Broker, Context
from quipu.model.errors import Code
from quipu.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse


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
        return Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        return Code.INVALID_REQUEST
    return Code.NONE

"""DescribeTransactions — API key 65, version 0.

Behaviour
    * there are no transactions: TRANSACTIONAL_ID_NOT_FOUND for each id, as for one that Kafka
      does not know; an empty id is INVALID_REQUEST
Versions
    v0  flexible encoding from the start
"""

from quipu.broker.serving.context import Broker, Context
from quipu.model.errors import Code
from quipu.wire.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)


async def handle(
    broker: Broker, request: DescribeTransactionsRequest, context: Context
) -> DescribeTransactionsResponse:
    del broker
    response = DescribeTransactionsResponse(transaction_states=context.array(TransactionState))
    for transactional_id in request.transactional_ids:
        await context.pause()
        response.transaction_states.append(TransactionState(
            transactional_id=transactional_id,
            error_code=Code.TRANSACTIONAL_ID_NOT_FOUND if transactional_id
            else Code.INVALID_REQUEST))
    return response

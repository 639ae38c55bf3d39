"""ListTransactions — API key 66, versions 0-2.

Behaviour
    * there are no transactions, so the list is empty
    * filters are checked as in Kafka: names of states that do not exist are in the response, and a
      pattern that cannot be used is INVALID_REGULAR_EXPRESSION
Versions
    v1  a filter by duration      v2  a filter by pattern of the id
"""

import re
from typing import Final

from quipu.broker.serving.context import Broker, Context
from quipu.model.errors import Code
from quipu.wire.messages.k66_list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)

STATES: Final = frozenset({
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
    "PrepareEpochFence"})
PATTERN_SIZE_MAX: Final = 1000


def handle(
    broker: Broker, request: ListTransactionsRequest, context: Context
) -> ListTransactionsResponse:
    del broker, context
    if not _is_pattern(request.transactional_id_pattern or ""):
        return ListTransactionsResponse(error_code=Code.INVALID_REGULAR_EXPRESSION)
    return ListTransactionsResponse(unknown_state_filters=[
        state for state in request.state_filters if state not in STATES])


def _is_pattern(pattern: str) -> bool:
    if len(pattern) > PATTERN_SIZE_MAX:
        return False
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    return True

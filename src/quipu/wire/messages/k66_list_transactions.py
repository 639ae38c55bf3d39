"""ListTransactions — API key 66, versions 0-2.

Behaviour
    * returns the transactional ids that this broker coordinates
Versions
    v0  flexible encoding from the start
    v1  only those whose transaction runs for longer than some time
    v2  only those whose id matches a pattern
"""

from quipu.wire.fields import INT64, STRING, array, int16, int32, int64, string
from quipu.wire.schema import Request, Response, Struct


class ListTransactionsRequest(Request, key=66, versions="0-2", flexible="0+"):
    """Get the transactional ids that match all filters."""

    state_filters: list[str] = array(STRING)
    producer_id_filters: list[int] = array(INT64)
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", nullable="2+", default=None)


class TransactionState(Struct):
    """One transactional id."""

    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


class ListTransactionsResponse(Response, key=66, versions="0-2", flexible="0+"):
    """The transactional ids, and which filters name no state."""

    throttle_time: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(STRING)
    transaction_states: list[TransactionState] = array(TransactionState)

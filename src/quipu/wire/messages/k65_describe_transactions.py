"""DescribeTransactions — API key 65, version 0.

Behaviour
    * returns the state of transactional ids, from the broker that coordinates them
Versions
    v0  flexible encoding from the start
"""

from quipu.wire.fields import INT32, STRING, array, int16, int32, int64, string
from quipu.wire.schema import Request, Response, Struct


class DescribeTransactionsRequest(Request, key=65, versions="0", flexible="0+"):
    """Get the state of these transactional ids."""

    transactional_ids: list[str] = array(STRING)


class TopicData(Struct):
    """Partitions of one topic that are part of a transaction."""

    topic: str = string()
    partitions: list[int] = array(INT32)


class TransactionState(Struct):
    """The state of one transactional id."""

    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout: int = int32()
    transaction_start_time: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TopicData] = array(TopicData)


class DescribeTransactionsResponse(Response, key=65, versions="0", flexible="0+"):
    """The state of each transactional id."""

    throttle_time: int = int32()
    transaction_states: list[TransactionState] = array(TransactionState)

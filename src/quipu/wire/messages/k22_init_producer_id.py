"""InitProducerId — API key 22, versions 0-5.

Behaviour
    * gives a producer an id and an epoch, by which brokers recognize batches that it sends twice
    * with a transactional id, aborts the open transaction of an earlier producer with that id
Versions
    v2  flexible encoding
    v3  a producer may keep its id, with a new epoch
    v4  PRODUCER_FENCED may be returned
    v5  TRANSACTION_ABORTABLE may be returned
"""

from quipu.wire.fields import int16, int32, int64, string
from quipu.wire.schema import Request, Response


class InitProducerIdRequest(Request, key=22, versions="0-5", flexible="2+"):
    """Get a producer id."""

    transactional_id: str | None = string(nullable="0+")
    transaction_timeout: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)


class InitProducerIdResponse(Response, key=22, versions="0-5", flexible="2+"):
    """The producer id and its epoch."""

    throttle_time: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()

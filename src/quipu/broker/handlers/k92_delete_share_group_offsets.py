"""DeleteShareGroupOffsets — API key 92, version 0.

Behaviour
    * there are no share groups: GROUP_ID_NOT_FOUND; an empty id is INVALID_GROUP_ID
Versions
    v0  flexible encoding from the start
"""

from quipu.broker.handlers.k90_describe_share_group_offsets import NO_SHARE_GROUPS
from quipu.broker.serving.context import Broker, Context
from quipu.model.errors import Code
from quipu.wire.messages.k92_delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)


def handle(
    broker: Broker, request: DeleteShareGroupOffsetsRequest, context: Context
) -> DeleteShareGroupOffsetsResponse:
    del broker, context
    if not request.group_id:
        return DeleteShareGroupOffsetsResponse(
            error_code=Code.INVALID_GROUP_ID, error_message="a group id is needed")
    return DeleteShareGroupOffsetsResponse(
        error_code=Code.GROUP_ID_NOT_FOUND, error_message=NO_SHARE_GROUPS)

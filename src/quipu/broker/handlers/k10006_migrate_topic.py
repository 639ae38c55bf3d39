"""MigrateTopic — API key 10006, version 0.  Quipu's own.

Behaviour
    * begins to make a topic on chains diskless, or calls that off, which works until the switch;
      responds at once: who begins again, or asks, is told how far it is
    * what cannot be migrated is INVALID_REQUEST with the reason; an action that does not exist too
    * carried out by the controller; other nodes forward the request to it
"""

from typing import Final, assert_never

from quipu.broker.serving.context import Broker, Context
from quipu.model.errors import Code, RequestError
from quipu.model.migration import MigrationAction
from quipu.wire.messages.k10006_migrate_topic import (
    MigratedPartition,
    MigrateTopicRequest,
    MigrateTopicResponse,
)

ON_CONTROLLER: Final = True


async def handle(
    broker: Broker, request: MigrateTopicRequest, context: Context
) -> MigrateTopicResponse:
    if request.action not in set(MigrationAction):
        raise RequestError(f"action {request.action}: 0 describes a migration, 1 begins it, and "
                           "2 calls it off", code=Code.INVALID_REQUEST)
    controller, action = broker.cluster.controller, MigrationAction(request.action)
    match action:
        case MigrationAction.DESCRIBE:
            pass
        case MigrationAction.BEGIN:
            await controller.begin_migration(request.name)
        case MigrationAction.CANCEL:
            await controller.cancel_migration(request.name)
        case _:
            assert_never(action)
    topic = await controller.migrating_topic(request.name)
    response = MigrateTopicResponse(
        topic_id=topic.topic_id, partitions=context.array(MigratedPartition))
    for each in broker.cluster.migrations.progress(topic):
        await context.pause()
        response.partitions.append(MigratedPartition(
            partition_index=each.partition, step=each.step, bytes_left=each.bytes_left,
            trouble=each.trouble or None))
    return response

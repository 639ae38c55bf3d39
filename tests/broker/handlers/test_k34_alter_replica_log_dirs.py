"""AlterReplicaLogDirs: a node has one directory, in which replicas stay."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from quipu.broker.handlers.k34_alter_replica_log_dirs import handle
from quipu.broker.serving.context import Broker, Context
from quipu.model.errors import Code
from quipu.wire.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from tests.looped import looped

OURS = "/var/lib/quipu/data"


def a_broker() -> Broker:
    """A node with partition 0 of `kept` on its disk, and partition 0 of `diskless` elsewhere."""
    known = {("kept", 0): SimpleNamespace(is_diskless=False),
             ("diskless", 0): SimpleNamespace(is_diskless=True)}
    return cast("Broker", SimpleNamespace(
        directory=SimpleNamespace(path=OURS),
        partitions=SimpleNamespace(find=lambda topic, index: known.get((topic, index)))))


async def moved(path: str, **topics: list[int]) -> list[tuple[str, int, int]]:
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[
        AlterReplicaLogDirTopic(name=name, partitions=indexes)
        for name, indexes in topics.items()])])
    response: Any = await handle(a_broker(), request, Context(2, 1, "test", "::1"))
    return [(topic.topic_name, part.partition_index, part.error_code)
            for topic in response.results for part in topic.partitions]


@pytest.mark.parametrize("path", [OURS, f"{OURS}/"])
@looped
async def test_a_replica_may_stay_where_it_is(path: str) -> None:
    """K6: and what is not on this disk is unknown, as in Kafka."""
    assert await moved(path, kept=[0, 7], diskless=[0], nope=[0]) == [
        ("kept", 0, Code.NONE), ("kept", 7, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ("diskless", 0, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ("nope", 0, Code.UNKNOWN_TOPIC_OR_PARTITION)]


@pytest.mark.parametrize("path", ["/elsewhere", "relative", ""])
@looped
async def test_there_is_no_other_directory(path: str) -> None:
    """K6: LOG_DIR_NOT_FOUND for each partition."""
    assert await moved(path, kept=[0], nope=[0]) == [
        ("kept", 0, Code.LOG_DIR_NOT_FOUND), ("nope", 0, Code.LOG_DIR_NOT_FOUND)]

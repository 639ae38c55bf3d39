"""Topics on chains that become diskless: Quipu's own."""

from enum import IntEnum
from typing import NamedTuple

from quipu.client.admin.routing import ask_any
from quipu.client.cluster import Cluster
from quipu.client.errors import broker_refused
from quipu.wire.messages.k10006_migrate_topic import MigrateTopicRequest, MigrateTopicResponse

NO_REASON = "no reason was given"


class MigrationAction(IntEnum):
    """What is asked of a cluster; the numbers are those of the request."""

    DESCRIBE = 0
    BEGIN = 1
    CANCEL = 2


STEPS = ("not begun", "sealing", "copying", "switching", "done")


class MigrationState(NamedTuple):
    """How far a partition is."""

    partition: int
    step: str  # one of STEPS
    bytes_left: int | None  # to be copied to the remote tier; None: not known
    trouble: str | None  # why the last step has failed, and is tried again

    @property
    def is_done(self) -> bool:
        return self.step == STEPS[-1]


def migrate_topic(
    cluster: Cluster, name: str, action: MigrationAction
) -> list[MigrationState]:
    """How far the partitions of a topic are, after `action` is carried out."""
    response, _ = ask_any(
        cluster, MigrateTopicRequest(name=name, action=action), MigrateTopicResponse)
    if response.error_code:
        raise broker_refused(response.error_code, f"cannot migrate {name}",
                             response.error_message or NO_REASON)
    return [MigrationState(
        each.partition_index,
        STEPS[each.step] if 0 <= each.step < len(STEPS) else f"step {each.step}",
        each.bytes_left if each.bytes_left >= 0 else None, each.trouble)
        for each in response.partitions]

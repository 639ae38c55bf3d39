"""Topics on chains that become diskless: Quipu's own."""

from typing import NamedTuple

from quipu.client.admin.routing import ask_any
from quipu.client.cluster import Cluster
from quipu.client.errors import broker_refused
from quipu.model.migration import MigrationAction, MigrationStep
from quipu.wire.messages.k10006_migrate_topic import MigrateTopicRequest, MigrateTopicResponse

NO_REASON = "no reason was given"


class MigrationState(NamedTuple):
    """How far a partition is."""

    partition: int
    step: str  # a MigrationStep in words; or its number, if it is not known here
    bytes_left: int | None  # to be copied to the remote tier; None: not known
    trouble: str | None  # why the last step has failed, and is tried again

    @property
    def is_done(self) -> bool:
        return self.step == step_name(MigrationStep.DONE)


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
        each.partition_index, step_name(each.step),
        each.bytes_left if each.bytes_left >= 0 else None, each.trouble)
        for each in response.partitions]


def step_name(step: int) -> str:
    """A step as people read it."""
    known = step in MigrationStep.__members__.values()
    return MigrationStep(step).name.replace("_", " ").lower() if known else f"step {step}"

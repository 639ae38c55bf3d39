"""`quipu topic migrate`: make a topic on chains diskless, and watch that; or call it off."""

import time
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Final

import typer

from quipu.cli.cluster import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, connect
from quipu.cli.errors import CommandFailed
from quipu.cli.output import count, note, print_json, show
from quipu.client.admin.migration import MigrationState, migrate_topic
from quipu.client.cluster import Cluster
from quipu.client.errors import ClientError
from quipu.model.errors import ErrorKind
from quipu.model.migration import MigrationAction

POLL_SECONDS: Final = 0.5
PATIENCE_SECONDS: Final = 60.0  # for which a cluster may fail to say how far it is


class MigrationTarget(StrEnum):
    """What topics can be made."""

    DISKLESS = "diskless"


def migrate(
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of a topic.")],
    *,
    to: Annotated[
        MigrationTarget, typer.Option(help="What the topic is to become.")
    ] = MigrationTarget.DISKLESS,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Call the migration off: the topic takes writes "
                                            "again.  Works until the switch.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Watch until it is done.")] = True,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Make a topic with a remote tier diskless, with all of its records and offsets.

    Producers wait meanwhile, consumers do not.  The cluster goes on by itself if this command ends;
    start it again to watch.
    """
    assert to is MigrationTarget.DISKLESS
    with connect(bootstrap) as cluster:
        if cancel:
            migrate_topic(cluster, name, MigrationAction.CANCEL)
            note(f"{name} is not migrated, and takes writes again")
            return
        states = migrate_topic(cluster, name, MigrationAction.BEGIN)
        if wait:
            states = _watched(cluster, name, states, as_json=as_json)
        _show(name, states, as_json=as_json)
        if wait:
            note(f"{name} is diskless")


def _watched(
    cluster: Cluster, name: str, states: list[MigrationState], *, as_json: bool
) -> list[MigrationState]:
    """The states when all partitions are done; what changes meanwhile is shown."""
    shown = ""
    heard_at = time.monotonic()
    while not all(state.is_done for state in states):
        if (summary := _summary(states)) != shown:
            shown = summary
            if as_json:
                _show(name, states, as_json=True)
            else:
                note(f"{name}: {summary}")
        time.sleep(POLL_SECONDS)
        try:
            states = migrate_topic(cluster, name, MigrationAction.DESCRIBE)
            heard_at = time.monotonic()
        except ClientError as error:  # the controller may be changing
            if error.kind is ErrorKind.INVALID or time.monotonic() - heard_at > PATIENCE_SECONDS:
                raise
            continue
        if any(state.step == "not begun" for state in states):
            raise CommandFailed(f"the migration of {name} was called off")
    return states


def _summary(states: Sequence[MigrationState]) -> str:
    """How many partitions are how far, in one line."""
    steps = dict.fromkeys(state.step for state in states)
    parts = [f"{sum(state.step == step for state in states)} {step}" for step in steps]
    left = sum(state.bytes_left or 0 for state in states)
    text = f"{count(len(states), 'partition')}: {', '.join(parts)}; {left} bytes left"
    troubles = [f"partition {state.partition}: {state.trouble}" for state in states
                if state.trouble]
    return f"{text}; {troubles[0]}" if troubles else text


def _show(name: str, states: Sequence[MigrationState], *, as_json: bool) -> None:
    rows = [{"partition": state.partition, "step": state.step, "bytes_left": state.bytes_left,
             "trouble": state.trouble} for state in states]
    if as_json:
        print_json({"topic": name, "partitions": rows})
    else:
        show(rows, ["partition", "step", "bytes_left", "trouble"], as_json=False)

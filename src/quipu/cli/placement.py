"""`quipu placement`: shows how diskless topics are placed, and the racks of the cluster."""

import datetime as dt
from typing import Annotated, Any, Final

import typer

from quipu.cli.application import PLAIN
from quipu.cli.cluster import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, check_topics, connect
from quipu.cli.errors import CommandFailed
from quipu.cli.output import count, note, print_json, show
from quipu.client.admin.placement import (
    PartitionPlacement,
    RackDescription,
    RacksDescription,
    TopicPlacement,
    describe_placement,
    describe_racks,
)
from quipu.client.admin.topics import describe_topics
from quipu.client.cluster import Cluster

app = typer.Typer(
    help="Show how diskless topics are placed: one replica in each rack.", **PLAIN)

Names = Annotated[
    list[str] | None, typer.Argument(metavar="TOPIC", help="Names of diskless topics. [all]")]

_COLUMNS: Final = ("topic", "partition", "leader", "replicas", "target_racks", "assigned_racks",
                   "coverage", "state", "exceptions")
_RACK_COLUMNS: Final = ("rack", "state", "since", "brokers", "up")


@app.command("show")
def show_(
    names: Names = None,
    *,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show the placement of diskless partitions.

    The coverage is the percentage of the target racks where a replica is up.  The state is
    `steady`; or `reconciling` while the controller moves replicas; or `frozen` if they are not
    where they should be and diskless.managed.rf.auto.reconcile is false.

    \b
    quipu placement show
    quipu placement show orders payments
    quipu placement show --json | jq 'select(.rack_coverage < 100)'
    """  # noqa: D301 the parser's mark of lines that stay as they are
    found = _placements(bootstrap, names or [])
    if not found and not as_json:
        note("no diskless topics yet; create one with "
             "`quipu topic create NAME --config diskless.enable=true`")
        return
    _show([part for topic in found.values() for part in topic.partitions], as_json=as_json)


@app.command()
def drift(
    names: Names = None,
    *,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show partitions that are not at their target.

    Their replicas differ from one in each rack, as far as brokers are up: after a
    move by an operator, or while the controller follows a change of the racks.

    \b
    quipu placement drift
    quipu placement drift orders --json
    """  # noqa: D301
    found = _placements(bootstrap, names or [])
    parts = [part for topic in found.values() for part in topic.partitions]
    drifted = [part for part in parts if part.is_drifted]
    if not drifted and not as_json:
        placed = ("1 diskless partition is as it should be" if len(parts) == 1
                  else f"{len(parts):,} diskless partitions are as they should be")
        note(f"no drift: {placed}" if parts else "no drift: there are no diskless partitions")
        return
    _show(drifted, as_json=as_json)


@app.command()
def racks(*, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """Show the racks, their states and brokers.

    A rack is HEALTHY while a broker of it is up, then DEGRADED, and UNAVAILABLE when none has been
    up for diskless.managed.rf.rack.unavailable.threshold.ms: then its replicas are removed.

    \b
    quipu placement racks
    quipu placement racks --json | jq .effective_rf
    """  # noqa: D301
    with connect(bootstrap) as cluster:
        found = describe_racks(cluster)
    if as_json:
        print_json(_racks_object(found))
        return
    mode = "" if found.auto_reconcile else "  auto-reconcile off"
    show([_rack_row(rack) for rack in found.racks], _RACK_COLUMNS, as_json=False,
         title=f"effective RF {found.effective_rf}  "
               f"backlog {count(found.reassignment_backlog, 'partition')}  "
               f"threshold {found.rack_unavailable_threshold_ms:,} ms{mode}")


# -- used by `quipu topic describe`, too


def placement_fields(part: PartitionPlacement) -> dict[str, Any]:
    """How a partition is placed, as fields of a JSON object."""
    return {
        "target_racks": list(part.target_racks), "assigned_racks": list(part.assigned_racks),
        "rack_coverage": part.rack_coverage, "placement_state": part.state,
        "placement_drift": part.is_drifted, "exceptions": list(part.exceptions)}


def table_fields(row: dict[str, Any]) -> dict[str, Any]:
    """A row with the short names of a table's columns."""
    return {**row, "coverage": f"{row['rack_coverage']}%", "state": row["placement_state"]}


def _placements(bootstrap: str, names: list[str]) -> dict[str, TopicPlacement]:
    with connect(bootstrap) as cluster:
        found = describe_placement(cluster, names)
        _check(cluster, names, found)
    return {name: found[name] for name in names or sorted(found)}


def _check(cluster: Cluster, names: list[str], found: dict[str, TopicPlacement]) -> None:
    """Raise for a topic that does not exist, or is not diskless."""
    others = [name for name in names if name not in found]
    if others:
        check_topics(others, describe_topics(cluster))
        raise CommandFailed(
            f"topic {others[0]} is not diskless: its replicas are those of its chain; see "
            f"`quipu topic describe {others[0]}`")


def _show(parts: list[PartitionPlacement], *, as_json: bool) -> None:
    rows = [{"topic": part.topic, "partition": part.partition, "leader": part.leader,
             "replicas": list(part.replicas), **placement_fields(part)} for part in parts]
    show(rows if as_json else [table_fields(row) for row in rows], _COLUMNS, as_json=as_json)


def _rack_row(rack: RackDescription) -> dict[str, Any]:
    since_ms = rack.degraded_since_ms
    since = dt.datetime.fromtimestamp(since_ms / 1000, tz=dt.UTC) if since_ms else None
    return {"rack": rack.name, "state": rack.state,
            "since": None if since is None else f"{since:%Y-%m-%d %H:%M:%SZ}",
            "brokers": list(rack.brokers), "up": list(rack.eligible_brokers)}


def _racks_object(found: RacksDescription) -> dict[str, Any]:
    return {
        "controller": found.controller_id, "effective_rf": found.effective_rf,
        "auto_reconcile": found.auto_reconcile,
        "rack_unavailable_threshold_ms": found.rack_unavailable_threshold_ms,
        "reassignment_backlog": found.reassignment_backlog,
        "racks": [{"rack": rack.name, "rack_state": rack.state,
                   "rack_degraded_since_ms": rack.degraded_since_ms,
                   "brokers": list(rack.brokers),
                   "eligible_brokers": list(rack.eligible_brokers)} for rack in found.racks]}

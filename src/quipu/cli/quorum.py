"""`quipu quorum`: lists, adds and removes the voters, the nodes that elect the controller."""

import time
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from quipu.cli.application import PLAIN
from quipu.cli.cluster import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, connect
from quipu.cli.output import note, show
from quipu.client.admin.quorum import (
    QuorumDescription,
    QuorumReplica,
    add_voter,
    describe_quorum,
    remove_voter,
)

app = typer.Typer(
    help="List, add and remove voters: the nodes that elect the controller.", **PLAIN)

NodeNumber = Annotated[
    int, typer.Argument(metavar="ID", min=0, help="Id of a node (node.id), as `quipu chain "
                        "describe` shows it.")]


@app.command("list")
def list_(*, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """List the nodes that replicate the metadata: voters, and observers, which do not vote."""
    with connect(bootstrap) as cluster:
        quorum = describe_quorum(cluster)
    rows = [*_rows(quorum, quorum.voters, "voter"),
            *_rows(quorum, quorum.observers, "observer")]
    show(rows, ["id", "role", "log_end", "behind", "heard_ms_ago"], as_json=as_json)


@app.command()
def add(node: NodeNumber, *, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Make a running node a voter; returns when it has caught up and the change is committed.

    With two voters the loss of either stops the quorum: add a third.
    """
    with connect(bootstrap) as cluster:
        add_voter(cluster, node)
    note(f"node {node} is a voter")


@app.command()
def remove(node: NodeNumber, *, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Make a voter an observer; it stays in the cluster, and in its chain."""
    with connect(bootstrap) as cluster:
        remove_voter(cluster, node)
    note(f"node {node} is no voter any more")


def _rows(
    quorum: QuorumDescription, replicas: Iterable[QuorumReplica], role: str
) -> list[dict[str, Any]]:
    end = max((each.log_end_offset for each in quorum.voters), default=0)
    now_ms = int(time.time() * 1000)
    return [
        {"id": each.node_id, "role": "leader" if each.node_id == quorum.leader_id else role,
         "log_end": each.log_end_offset, "behind": end - each.log_end_offset,
         "heard_ms_ago": None if each.last_fetch_ms is None
         else max(now_ms - each.last_fetch_ms, 0)}
        for each in replicas]

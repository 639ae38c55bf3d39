"""`quipu chain`: list, create, extend, describe and remove chains of nodes."""

import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

import typer

from quipu.cli.application import PLAIN
from quipu.cli.chain_removal import remove
from quipu.cli.cluster import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, connect, unknown
from quipu.cli.errors import CommandFailed
from quipu.cli.output import count, note, print_json, show
from quipu.client.admin.chains import (
    ChainDescription,
    ChainMemberDescription,
    OrderDescription,
    create_chain,
    describe_chains,
    extend_chain,
)
from quipu.client.admin.routing import TRANSIENT
from quipu.client.cluster import Cluster
from quipu.client.errors import BrokerRefused
from quipu.model.chains import MemberState, member_key
from quipu.model.errors import Code

app = typer.Typer(help="List, create, extend, describe and remove chains of nodes.", **PLAIN)
app.command()(remove)

POLL_SECONDS: Final = 0.2
_NOT_YET: Final = frozenset({
    *TRANSIENT, Code.BROKER_ID_NOT_REGISTERED, Code.BROKER_NOT_AVAILABLE})

Name = Annotated[str, typer.Argument(metavar="CHAIN", help="Name of a chain.")]
Wait = Annotated[
    float,
    typer.Option(
        min=0, metavar="SECONDS",
        help="Longest wait for nodes that are not up yet, and until every member serves."),
]


class NotServing(CommandFailed):
    """A chain exists, but some members did not start to serve in time."""


@app.command("list")
def list_(*, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """List chains."""
    with connect(bootstrap) as cluster:
        rows = [_row(chain) for chain in describe_chains(cluster)]
    if not rows and not as_json:
        note("no chains yet; create one with `quipu chain create CHAIN NODE NODE ...`")
        return
    columns = ["name", "serving", "nodes", "head", "tail", "topics", "partitions", "epoch"]
    show(rows if as_json else [_short(row) for row in rows], columns, as_json=as_json)


@app.command()
def describe(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="CHAIN", help="Names of chains. [all]")
    ] = None,
    *,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show the nodes of chains, in the order in which records travel."""
    with connect(bootstrap) as cluster:
        found = {chain.name: chain for chain in describe_chains(cluster)}
    for place, name in enumerate(names or sorted(found)):
        if name not in found:
            raise CommandFailed(unknown("chain", name, found))
        if place and not as_json:
            print()
        _show_chain(found[name], as_json=as_json)


@app.command()
def create(
    name: Name,
    nodes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NODE",
            help="Names of its nodes. [every registered node named CHAIN-0, CHAIN-1, ...]"),
    ] = None,
    *,
    or_extend: Annotated[
        bool,
        typer.Option("--or-extend", help="If the chain exists, add the given nodes that it lacks."),
    ] = False,
    wait: Wait = 0.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Create a chain of running nodes; records travel in the order of the nodes' numbers."""
    chain, what = make(bootstrap, name, nodes or [], or_extend=or_extend, wait_seconds=wait)
    if as_json:
        print_json(_row(chain))
    else:
        note(f"{what} {', '.join(member.name for member in chain.members)}")


@app.command()
def extend(
    name: Name,
    node: Annotated[str, typer.Argument(metavar="NODE", help="Name of a node in no chain yet.")],
    *,
    wait: Wait = 0.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Add a node to the end of a chain; it serves when it has caught up."""
    deadline = time.monotonic() + wait
    with connect(bootstrap) as cluster:
        chain = _extended(cluster, name, node, deadline)
        if wait:
            chain = _await_serving(cluster, name, deadline)
    if as_json:
        print_json(_row(chain))
    else:
        note(f"{node} joined chain {name}; see `quipu chain describe {name}`")


# -- used by `quipu dev` and the bench, too


def make(
    bootstrap: str, name: str, nodes: Sequence[str], *, or_extend: bool, wait_seconds: float
) -> tuple[ChainDescription, str]:
    """Create a chain, or add the nodes it lacks; returns it and a text: `created chain a of`."""
    deadline = time.monotonic() + wait_seconds
    with connect(bootstrap) as cluster:
        existing = describe_chains(cluster, [name]) if or_extend else []
        if existing:
            (chain,) = existing
            missing = sorted(
                set(nodes) - {member.name for member in chain.members}, key=member_key)
            for node in missing:
                chain = _extended(cluster, name, node, deadline)
            what = f"extended chain {name} to" if missing else f"chain {name} exists already, of"
        else:
            chain = _when_up(lambda: create_chain(cluster, name, nodes), deadline)
            what = f"created chain {name} of"
        if wait_seconds:
            chain = _await_serving(cluster, name, deadline)
    return chain, what


def _extended(cluster: Cluster, name: str, node: str, deadline: float) -> ChainDescription:
    return _when_up(lambda: extend_chain(cluster, name, node), deadline)


def _when_up(call: Callable[[], ChainDescription], deadline: float) -> ChainDescription:
    """Make a call again until the nodes that it needs are up, or the time is over."""
    while True:
        try:
            return call()
        except BrokerRefused as error:
            if error.code not in _NOT_YET or time.monotonic() > deadline:
                raise
        time.sleep(POLL_SECONDS)


def _await_serving(cluster: Cluster, name: str, deadline: float) -> ChainDescription:
    while True:
        (chain,) = describe_chains(cluster, [name])
        behind = {member.name: member.state for member in chain.members
                  if member.state is not MemberState.SERVING}
        names = {member.node_id: member.name for member in chain.members}
        for order in chain.orders:  # a member serves when it has caught up in all of them
            behind.update((names[node_id], state) for node_id, state in order.members
                          if state is not MemberState.SERVING)
        if not behind:
            return chain
        if time.monotonic() > deadline:
            states = ", ".join(f"{name} is {state.name.lower()}" for name, state in behind.items())
            raise NotServing(f"chain {name} exists, but some members do not serve yet: {states}")
        time.sleep(POLL_SECONDS)


# -- output


def _row(chain: ChainDescription) -> dict[str, Any]:
    """A chain as a JSON object."""
    return {
        "name": chain.name,
        "epoch": chain.epoch,
        "version": chain.version,
        "topics": chain.topic_count,
        "partitions": chain.partition_count,
        "members": [_member_row(chain, member) for member in chain.members],
        "orders": [_order_row(chain, order) for order in chain.orders],
    }


def _order_row(chain: ChainDescription, order: OrderDescription) -> dict[str, Any]:
    names = {member.node_id: member.name for member in chain.members}
    return {
        "order": [names[node_id] for node_id in order.preferred],
        "partitions": order.partition_count,
        "epoch": order.epoch,
        **{state.name.lower(): [names[node_id] for node_id, each in order.members if each is state]
           for state in MemberState},
    }


def _member_row(chain: ChainDescription, member: ChainMemberDescription) -> dict[str, Any]:
    serving = [each for each in chain.members if each.state is MemberState.SERVING]
    roles = [role for role, at in (("head", 0), ("tail", -1))
             if serving and serving[at] is member]
    return {
        "name": member.name,
        "id": member.node_id,
        "state": member.state.name.lower(),
        "role": "+".join(roles) or None,
        "up": not member.is_fenced,
        "rack": member.rack,
        "address": member.address,
    }


def _short(row: dict[str, Any]) -> dict[str, Any]:
    """A chain as a line of a table."""
    serving = [member["name"] for member in row["members"] if member["state"] == "serving"]
    return {**row, "nodes": len(row["members"]), "serving": len(serving),
            "head": serving[0] if serving else None, "tail": serving[-1] if serving else None}


def _show_chain(chain: ChainDescription, *, as_json: bool) -> None:
    row = _row(chain)
    if as_json:
        print_json(row)
        return
    title = (f"chain {chain.name}  epoch {chain.epoch}  {count(chain.topic_count, 'topic')}  "
             f"{count(chain.partition_count, 'partition')}")
    show(row["members"], ["name", "id", "role", "state", "up", "rack", "address"],
         as_json=False, title=title)
    if len(row["orders"]) > 1:
        show([{key: (" ".join(value) or None) if isinstance(value, list) else value
               for key, value in order.items()} for order in row["orders"]],
             ["order", "partitions", "epoch", "serving", "syncing", "offline"],
             as_json=False, title="the orders in which its nodes hold partitions")

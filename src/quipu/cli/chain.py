"""`quipu chain`: list, create, extend and describe chains of nodes."""

import time
from collections.abc import Sequence
from typing import Annotated, Any, Final, cast

import typer

from quipu.cli import direct, kafka
from quipu.cli.application import PLAIN
from quipu.cli.errors import CommandFailed
from quipu.cli.kafka import AsJson, Bootstrap
from quipu.cli.output import count, print_json, show, tell
from quipu.model.chains import MemberState, member_key
from quipu.model.errors import Code
from quipu.wire.messages.k10000_describe_chains import (
    ChainMember,
    DescribeChainsRequest,
    DescribeChainsResponse,
    DescribedChain,
)
from quipu.wire.messages.k10001_create_chain import CreateChainRequest, CreateChainResponse
from quipu.wire.messages.k10002_extend_chain import ExtendChainRequest, ExtendChainResponse

app = typer.Typer(help="List, create, extend and describe chains of nodes.", **PLAIN)

POLL_SECONDS: Final = 0.2
_NOT_YET: Final = frozenset({
    *direct.TRANSIENT, Code.BROKER_ID_NOT_REGISTERED, Code.BROKER_NOT_AVAILABLE})
_STATES: Final = {state.value: state.name.lower() for state in MemberState}

Name = Annotated[str, typer.Argument(metavar="CHAIN", help="Name of a chain.")]
Wait = Annotated[
    float,
    typer.Option(
        min=0, metavar="SECONDS",
        help="How long to wait for nodes that are not up yet, and until every member serves."),
]


class Refused(CommandFailed):
    """The cluster said no."""

    def __init__(self, doing: str, code: int, why: str | None) -> None:
        super().__init__(f"{doing}: {why or 'no reason was given'} [{direct.code_name(code)}]")
        self.code = code


class NotServing(CommandFailed):
    """A chain is there, but some members do not serve in time."""


@app.command("list")
def list_(*, bootstrap: Bootstrap = kafka.DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """List chains."""
    rows = [_row(chain) for chain in find(bootstrap)]
    if not rows and not as_json:
        tell("no chains yet; create one with `quipu chain create CHAIN NODE NODE ...`")
        return
    columns = ["name", "serving", "nodes", "head", "tail", "topics", "partitions", "epoch"]
    show(rows if as_json else [_short(row) for row in rows], columns, as_json=as_json)


@app.command()
def describe(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="CHAIN", help="Names of chains. [all]")
    ] = None,
    *,
    bootstrap: Bootstrap = kafka.DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show the nodes of chains, in the order in which records travel."""
    found = {chain.name: chain for chain in find(bootstrap)}
    for place, name in enumerate(names or sorted(found)):
        if name not in found:
            raise CommandFailed(kafka.unknown("chain", name, found))
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
            help="Names of its nodes, CHAIN-0 and so on. [every registered one called so]"),
    ] = None,
    *,
    or_extend: Annotated[
        bool,
        typer.Option("--or-extend", help="If the chain exists, add those nodes that it lacks."),
    ] = False,
    wait: Wait = 0.0,
    bootstrap: Bootstrap = kafka.DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Make a chain of nodes that are up; records travel in the order of their numbers."""
    chain, what = make(bootstrap, name, nodes or [], or_extend=or_extend, wait_seconds=wait)
    if as_json:
        print_json(_row(chain))
    else:
        tell(f"{what} {', '.join(member.name for member in chain.members)}")


@app.command()
def extend(
    name: Name,
    node: Annotated[str, typer.Argument(metavar="NODE", help="Name of a node in no chain yet.")],
    *,
    wait: Wait = 0.0,
    bootstrap: Bootstrap = kafka.DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Add a node to the end of a chain; it serves when it has caught up."""
    deadline = time.monotonic() + wait
    chain = _extend(bootstrap, name, node, deadline)
    if wait:
        chain = _await_serving(bootstrap, name, deadline)
    if as_json:
        print_json(_row(chain))
    else:
        tell(f"{node} joined chain {name}; see `quipu chain describe {name}`")


# -- what the commands do; `quipu dev` does it too


def find(bootstrap: str, names: Sequence[str] | None = None) -> list[DescribedChain]:
    """Chains by name; all if none are named."""
    request = DescribeChainsRequest(names=None if names is None else list(names))
    answer = cast("DescribeChainsResponse", direct.ask(bootstrap, request))
    if answer.error_code != Code.NONE:
        raise Refused("cannot list chains", answer.error_code, answer.error_message)
    return sorted(answer.chains, key=lambda chain: chain.name)


def make(
    bootstrap: str, name: str, nodes: Sequence[str], *, or_extend: bool, wait_seconds: float
) -> tuple[DescribedChain, str]:
    """A chain that is there now, and what was done for it: `created chain a of`."""
    deadline = time.monotonic() + wait_seconds
    there = find(bootstrap, [name]) if or_extend else []
    if there:
        (chain,) = there
        missing = sorted(set(nodes) - {member.name for member in chain.members}, key=member_key)
        for node in missing:
            chain = _extend(bootstrap, name, node, deadline)
        what = f"extended chain {name} to" if missing else f"chain {name} is there already, of"
    else:
        chain = _create(bootstrap, name, nodes, deadline)
        what = f"created chain {name} of"
    if wait_seconds:
        chain = _await_serving(bootstrap, name, deadline)
    return chain, what


def _create(
    bootstrap: str, name: str, nodes: Sequence[str], deadline: float
) -> DescribedChain:
    request = CreateChainRequest(name=name, node_names=list(nodes))
    doubts: list[int] = []  # an attempt may have worked without telling
    while True:
        answer = cast("CreateChainResponse", direct.ask(bootstrap, request, doubts=doubts))
        if answer.error_code == Code.NONE and answer.chain is not None:
            return answer.chain
        if answer.error_code == Code.DUPLICATE_RESOURCE and doubts:
            (chain,) = find(bootstrap, [name])
            return chain
        if answer.error_code not in _NOT_YET or time.monotonic() > deadline:
            raise Refused(f"cannot create chain {name}", answer.error_code, answer.error_message)
        time.sleep(POLL_SECONDS)


def _extend(bootstrap: str, name: str, node: str, deadline: float) -> DescribedChain:
    request = ExtendChainRequest(name=name, node_name=node)
    while True:
        answer = cast("ExtendChainResponse", direct.ask(bootstrap, request))
        if answer.error_code == Code.NONE and answer.chain is not None:
            return answer.chain
        if answer.error_code not in _NOT_YET or time.monotonic() > deadline:
            raise Refused(
                f"cannot add {node} to chain {name}", answer.error_code, answer.error_message)
        time.sleep(POLL_SECONDS)


def _await_serving(bootstrap: str, name: str, deadline: float) -> DescribedChain:
    while True:
        (chain,) = find(bootstrap, [name])
        behind = [member for member in chain.members if member.state != MemberState.SERVING]
        if not behind:
            return chain
        if time.monotonic() > deadline:
            states = ", ".join(f"{each.name} is {_STATES.get(each.state)}" for each in behind)
            raise NotServing(f"chain {name} is there, but not all of it serves yet: {states}")
        time.sleep(POLL_SECONDS)


# -- how it is shown


def _row(chain: DescribedChain) -> dict[str, Any]:
    """A chain as a JSON object."""
    return {
        "name": chain.name,
        "epoch": chain.epoch,
        "version": chain.version,
        "topics": chain.topic_count,
        "partitions": chain.partition_count,
        "members": [_member_row(chain, member) for member in chain.members],
    }


def _member_row(chain: DescribedChain, member: ChainMember) -> dict[str, Any]:
    serving = [each for each in chain.members if each.state == MemberState.SERVING]
    roles = [role for role, at in (("head", 0), ("tail", -1))
             if serving and serving[at] is member]
    return {
        "name": member.name,
        "id": member.node_id,
        "state": _STATES.get(member.state, str(member.state)),
        "role": "+".join(roles) or None,
        "up": not member.is_fenced,
        "rack": member.rack,
        "address": f"{member.host}:{member.port}" if member.host else None,
    }


def _short(row: dict[str, Any]) -> dict[str, Any]:
    """A chain as a line of a table."""
    serving = [member["name"] for member in row["members"] if member["state"] == "serving"]
    return {**row, "nodes": len(row["members"]), "serving": len(serving),
            "head": serving[0] if serving else None, "tail": serving[-1] if serving else None}


def _show_chain(chain: DescribedChain, *, as_json: bool) -> None:
    row = _row(chain)
    if as_json:
        print_json(row)
        return
    title = (f"chain {chain.name}  epoch {chain.epoch}  {count(chain.topic_count, 'topic')}  "
             f"{count(chain.partition_count, 'partition')}")
    show(row["members"], ["name", "id", "role", "state", "up", "rack", "address"],
         as_json=False, title=title)

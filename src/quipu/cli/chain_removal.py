"""`quipu chain remove`: takes out a chain, or one node of it; partitions move elsewhere."""

import time
from typing import Annotated, Final

import typer

from quipu.cli.cluster import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, connect
from quipu.cli.errors import CommandFailed
from quipu.cli.output import count, note, print_json
from quipu.client.admin.brokers import unregister_broker
from quipu.client.admin.chains import ChainRemoval, describe_chains, remove_chain
from quipu.client.admin.quorum import describe_quorum, remove_voter
from quipu.client.cluster import Cluster
from quipu.client.errors import BrokerRefused, ClientError
from quipu.model.errors import Code, ErrorKind

POLL_SECONDS: Final = 0.5
PATIENCE_SECONDS: Final = 60.0  # for which a cluster may fail to say how far it is


class NotRemoved(CommandFailed):
    """Partitions are still there when the time is over; they go on moving."""


def remove(
    name: Annotated[str, typer.Argument(metavar="CHAIN", help="Name of a chain.")],
    node: Annotated[
        str | None,
        typer.Argument(metavar="NODE", help="Name of one of its nodes, to take out that node "
                                            "alone. [the whole chain]"),
    ] = None,
    *,
    drain: Annotated[
        bool, typer.Option("--drain", help="Of a whole chain: move its partitions to other chains "
                                           "first.")] = False,
    replace_by: Annotated[
        str | None,
        typer.Option(metavar="NODE", help="Of one node: the node that takes its place in each "
                                          "partition."),
    ] = None,
    shorten: Annotated[
        bool, typer.Option("--shorten", help="Let partitions go on with fewer replicas where there "
                                             "is no other node for them.")] = False,
    wait: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Longest wait until partitions have "
                                                           "moved.")] = 86_400.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Take a chain, or one node of it, out of the cluster for good.

    An empty chain is removed at once; with --drain its partitions are moved to other chains first.
    With NODE, that node alone: each of its partitions is moved to the node of --replace-by, or goes
    on with fewer replicas (--shorten).  Then the chain goes on without the node, the node votes no
    more, and once its process is stopped it is unregistered.  To replace a node under the same
    name, do not remove it: start it again under its name with an empty directory.

    The cluster goes on by itself if this command ends.  Start it again to watch, and to finish.
    """
    _check_usage(node, drain=drain, replace_by=replace_by)
    deadline = time.monotonic() + wait
    with connect(bootstrap) as cluster:
        try:
            progress = _watched(
                cluster, name, node, deadline, replace_by=replace_by, drain=drain,
                shorten=shorten, as_json=as_json)
        except BrokerRefused as error:
            if node is None or error.code != Code.BROKER_ID_NOT_REGISTERED or not _is_gone(
                    cluster, node, replace_by, error):
                raise
            note(f"no node called {node} is registered: there is nothing to remove")
            return
        if node is None:
            note(f"chain {name} is removed; its nodes are in no chain")
        else:
            _forget_node(cluster, node, progress)


def _check_usage(node: str | None, *, drain: bool, replace_by: str | None) -> None:
    if node is None and replace_by is not None:
        raise typer.BadParameter("--replace-by is for one node: quipu chain remove CHAIN NODE "
                                 "--replace-by OTHER")
    if node is not None and drain:
        raise typer.BadParameter("--drain is for a whole chain; for one node say --replace-by NODE "
                                 "or --shorten")


def _is_gone(
    cluster: Cluster, node: str, replace_by: str | None, error: BrokerRefused
) -> bool:
    """Whether the error is about the node itself, as after a removal that was finished before."""
    chains = describe_chains(cluster)
    members = {member.name for chain in chains for member in chain.members}
    return node not in members and (replace_by is None or repr(replace_by) not in str(error))


def _watched(
    cluster: Cluster, name: str, node: str | None, deadline: float, *, replace_by: str | None,
    drain: bool, shorten: bool, as_json: bool,
) -> ChainRemoval:
    """Repeat the request until it is done; what changes meanwhile is shown."""
    shown = ""
    heard_at = time.monotonic()
    while True:
        try:
            progress = remove_chain(
                cluster, name, node, replace_by=replace_by, drain=drain, shorten=shorten)
            heard_at = time.monotonic()
        except ClientError as error:  # the controller may be changing
            if error.kind is ErrorKind.INVALID or time.monotonic() - heard_at > PATIENCE_SECONDS:
                raise
            time.sleep(POLL_SECONDS)
            continue
        if (summary := _summary(progress)) != shown:
            shown = summary
            _show(name, node, progress, summary, as_json=as_json)
        if progress.is_done:
            return progress
        if time.monotonic() > deadline:
            raise NotRemoved(f"{summary}; they go on moving: start the command again to finish")
        time.sleep(POLL_SECONDS)


def _summary(progress: ChainRemoval) -> str:
    text = (f"{count(progress.partitions_left, 'partition')} left, "
            f"{progress.partitions_moving} moving")
    return f"{text}; {progress.trouble}" if progress.trouble else text


def _show(
    name: str, node: str | None, progress: ChainRemoval, summary: str, *, as_json: bool
) -> None:
    if as_json:
        print_json({"chain": name, "node": node, "done": progress.is_done,
                    "partitions_left": progress.partitions_left,
                    "partitions_moving": progress.partitions_moving,
                    "trouble": progress.trouble})
    elif not progress.is_done:
        note(summary)


def _forget_node(cluster: Cluster, node: str, progress: ChainRemoval) -> None:
    """Take a node that has no partitions from the quorum, and unregister it if it is down."""
    assert progress.node_id is not None, progress
    quorum = describe_quorum(cluster)
    voters = [voter.node_id for voter in quorum.voters]
    if progress.node_id in voters:
        if len(voters) == 1:
            raise CommandFailed(f"{node} is the last voter: make another node a voter first "
                                "(quipu quorum add ID)")
        remove_voter(cluster, progress.node_id)
        note(f"{node} is no voter any more")
    if progress.node_is_up:
        note(f"{node} is in no chain and has no partitions; stop it, and start this command again "
             "to unregister it")
        return
    unregister_broker(cluster, progress.node_id)
    note(f"{node} is removed")

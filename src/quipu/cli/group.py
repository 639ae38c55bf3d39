"""`quipu group`: lists, describes, resets and deletes consumer groups."""

import time
from typing import Annotated, Any, Final

import typer

from quipu.cli.application import PLAIN
from quipu.cli.cluster import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    bounds,
    check_topics,
    connect,
    find_offsets,
    no_partition,
    partitions_of,
    unknown,
)
from quipu.cli.errors import CommandFailed
from quipu.cli.output import note, print_json, show
from quipu.cli.positions import HELP, parse_position
from quipu.client.admin import groups
from quipu.client.admin.groups import GroupDescription, MemberDescription
from quipu.client.admin.topics import TopicDescription, describe_topics
from quipu.client.cluster import Cluster
from quipu.client.commit import commit
from quipu.client.errors import BrokerRefused
from quipu.model.ids import TopicPartition

app = typer.Typer(help="List, describe, reset and delete consumer groups.", **PLAIN)

STATES: Final = {  # as tools built on librdkafka name them
    "PreparingRebalance": "PREPARING_REBALANCING", "CompletingRebalance": "COMPLETING_REBALANCING",
}
Groups = Annotated[list[str], typer.Argument(metavar="GROUP", help="Ids of groups.")]
Group = Annotated[str, typer.Argument(metavar="GROUP", help="Id of a group.")]


@app.command("list")
def list_(
    *,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List consumer groups."""
    with connect(bootstrap) as cluster:
        there = groups.list_groups(cluster)
    rows = [{"group": name, "state": _state(there[name])} for name in sorted(there)]
    if not rows and not as_json:
        note("no consumer groups yet; `quipu consume TOPIC --group NAME` makes one")
        return
    show(rows, ["group", "state"], as_json=as_json)


@app.command()
def describe(
    names: Groups,
    *,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show the members of groups, and offset, end and lag of each partition."""
    with connect(bootstrap) as cluster:
        for name in names:
            _check_groups([name], cluster)
            group = groups.describe_group(cluster, name)
            rows = _progress(cluster, name, group)
            _show_group(name, group, rows, as_json=as_json)


@app.command()
def reset(
    name: Group,
    *,
    to: Annotated[
        str, typer.Option("--to", metavar="POSITION", help=f"Where to continue: {HELP}.")],
    topic: Annotated[
        list[str],
        typer.Option(
            metavar="TOPIC[:PARTITION]",
            help="Only this topic or partition; may be repeated. [all with committed offsets]"),
    ] = [],  # noqa: B006 typer copies it
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change and change nothing.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Move the committed offsets of a group that has no members now."""
    try:
        position = parse_position(to, now_ms=int(time.time() * 1000))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--to") from None
    with connect(bootstrap) as cluster:
        known = groups.list_groups(cluster)
        before = groups.committed_offsets(cluster, name) if name in known else {}
        if not before and not topic:
            raise CommandFailed(
                f"group {name} has no committed offsets; say which topics with --topic TOPIC"
            )
        there = describe_topics(cluster)
        chosen = _chosen(topic, there) if topic else sorted(before)
        check_topics({part.topic for part in chosen}, there)
        after = find_offsets(cluster, chosen, position)
        if not dry_run:
            _commit(cluster, name, after)
    rows = [
        {"topic": key[0], "partition": key[1], "before": before.get(key), "after": after[key]}
        for key in sorted(after)
    ]
    title = "dry run: nothing was changed" if dry_run else ""
    show(rows, ["topic", "partition", "before", "after"], as_json=as_json, title=title)


@app.command()
def delete(
    names: Groups,
    *,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete groups that have no members, with their offsets."""
    with connect(bootstrap) as cluster:
        _check_groups(names, cluster)
        for name in names:
            groups.delete_group(cluster, name)
            note(f"deleted {name}")


def _check_groups(names: list[str], cluster: Cluster) -> None:
    """Raise `CommandFailed` for a name that is no group, with the nearest one that is."""
    known = groups.list_groups(cluster)
    for name in names:
        if name not in known:
            raise CommandFailed(unknown("group", name, known))


def _show_group(
    name: str, group: GroupDescription, rows: list[dict[str, Any]], *, as_json: bool
) -> None:
    members = [_member(member) for member in group.members]
    lag = sum(row["lag"] or 0 for row in rows)
    state = _state(group.state)
    if as_json:
        print_json({
            "group": name, "state": state, "assignor": group.assignor,
            "lag": lag, "members": members, "partitions": rows,
        })  # fmt: skip
        return
    columns = ["topic", "partition", "offset", "end", "lag", "consumer"]
    show(rows, columns, as_json=False, title=f"group {name}  {state}  lag {lag}")
    if members:
        print()
        show(members, ["member", "client", "host", "partitions"], as_json=False)


def _state(state: str) -> str:
    return STATES.get(state, state.upper())


def _member(member: MemberDescription) -> dict[str, object]:
    return {
        "member": member.member_id,
        "instance": member.instance_id,
        "client": member.client_id,
        "host": member.host,
        "partitions": [f"{topic}-{partition}" for topic, partition in member.partitions],
    }


def _progress(cluster: Cluster, name: str, group: GroupDescription) -> list[dict[str, Any]]:
    """Offset, end and lag of every partition with a committed offset or an assigned member."""
    owners = {part: member.client_id for member in group.members for part in member.partitions}
    committed = groups.committed_offsets(cluster, name)
    limits = bounds(cluster, sorted(committed.keys() | owners.keys()))
    rows = []
    for part, (start, end) in limits.items():
        offset = committed.get(part)
        row = {
            "topic": part.topic,
            "partition": part.partition,
            "offset": offset,
            "end": end,
            "lag": end - max(offset, start) if offset is not None else None,
            "consumer": owners.get(part),
        }
        rows.append(row)
    return rows


def _chosen(words: list[str], there: dict[str, TopicDescription]) -> list[TopicPartition]:
    """The partitions that `--topic TOPIC[:PARTITION]` names."""
    found = []
    for word in words:
        topic, colon, partition = word.partition(":")
        check_topics([topic], there)
        if colon and not (partition.isascii() and partition.isdigit()):
            raise no_partition(there[topic], partition or "(empty)")
        found += partitions_of(there[topic], [int(partition)] if colon else [])
    return found


def _commit(cluster: Cluster, name: str, offsets: dict[TopicPartition, int]) -> None:
    try:
        commit(cluster, name, offsets)
    except BrokerRefused as error:
        raise CommandFailed(
            f"cannot reset group {name}; are its consumers stopped? {error}") from None

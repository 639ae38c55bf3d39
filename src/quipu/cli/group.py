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
    offline_text,
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
    """List consumer groups; fails, after those that are known, if a coordinator is away."""
    with connect(bootstrap) as cluster:
        there, missing = groups.list_groups(cluster)
    rows = [{"group": name, "state": _state(there[name])} for name in sorted(there)]
    if rows or as_json:
        show(rows, ["group", "state"], as_json=as_json)
    elif not missing:
        note("no consumer groups yet; `quipu consume TOPIC --group NAME` makes one")
    if missing:
        raise CommandFailed(f"groups may be missing: their coordinators are not available, because "
                            f"{offline_text(missing)}")


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
            group = _described(cluster, name)
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
        before = groups.committed_offsets(cluster, name)
        if not before and not topic:
            raise CommandFailed(
                f"group {name} has no committed offsets; say which topics with --topic TOPIC"
            )
        there = describe_topics(cluster)
        chosen = _chosen(topic, there) if topic else sorted(before)
        check_topics({part.topic for part in chosen}, there)
        after = find_offsets(cluster, chosen, position)
        if offline := set(chosen) - after.keys():
            raise CommandFailed(f"nothing was changed: {offline_text(offline)}")
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
        for name in names:  # if one is unknown, none is deleted
            _described(cluster, name)
        for name in names:
            groups.delete_group(cluster, name)
            note(f"deleted {name}")


def _described(cluster: Cluster, name: str) -> GroupDescription:
    """A group, as its coordinator describes it; `CommandFailed` if it says that there is none."""
    group = groups.describe_group(cluster, name)
    if group is None:
        raise CommandFailed(unknown("group", name, groups.list_groups(cluster).groups))
    return group


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
    parts = sorted(committed.keys() | owners.keys())
    limits = bounds(cluster, parts)
    rows = []
    for part in parts:
        offset, found = committed.get(part), limits.get(part)
        row = {
            "topic": part.topic,
            "partition": part.partition,
            "offset": offset,
            "end": None if found is None else found.end,
            "lag": None if found is None or offset is None
            else found.end - max(offset, found.start),
            "consumer": owners.get(part),
        }
        rows.append(row)
    if offline := set(parts) - limits.keys():
        note(offline_text(offline))
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

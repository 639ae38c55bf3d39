"""`quipu group`: who consumes what, how far they are, and where they go on."""

import time
from typing import Annotated, Any

import typer
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, ConsumerGroupDescription

from quipu.cli import kafka
from quipu.cli.application import PLAIN
from quipu.cli.errors import CommandFailed
from quipu.cli.kafka import AsJson, Bootstrap
from quipu.cli.output import print_json, show, tell
from quipu.cli.positions import HELP, parse_position

app = typer.Typer(help="List, describe, reset and delete consumer groups.", **PLAIN)

Groups = Annotated[list[str], typer.Argument(metavar="GROUP", help="Ids of groups.")]
Group = Annotated[str, typer.Argument(metavar="GROUP", help="Id of a group.")]


@app.command("list")
def list_(
    *,
    bootstrap: Bootstrap = kafka.DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List consumer groups."""
    admin, _ = kafka.connect(bootstrap)
    groups = _all_groups(admin)
    rows = [{"group": name, "state": groups[name]} for name in sorted(groups)]
    if not rows and not as_json:
        tell("no consumer groups yet; `quipu consume TOPIC --group NAME` makes one")
        return
    show(rows, ["group", "state"], as_json=as_json)


@app.command()
def describe(
    names: Groups,
    *,
    bootstrap: Bootstrap = kafka.DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show members, and offset, end and lag of each partition."""
    admin, _ = kafka.connect(bootstrap)
    for name in names:
        group = _describe(admin, name)
        owners = {
            (part.topic, part.partition): member.client_id
            for member in group.members
            for part in member.assignment.topic_partitions
        }
        members = [_member(member) for member in group.members]
        rows = _progress(admin, name, owners)
        lag = sum(row["lag"] or 0 for row in rows)
        state = group.state.name
        if as_json:
            print_json({
                "group": name, "state": state, "assignor": group.partition_assignor,
                "lag": lag, "members": members, "partitions": rows,
            })  # fmt: skip
            continue
        columns = ["topic", "partition", "offset", "end", "lag", "consumer"]
        show(rows, columns, as_json=False, title=f"group {name}  {state}  lag {lag}")
        if members:
            print()
            show(members, ["member", "client", "host", "partitions"], as_json=False)


@app.command()
def reset(
    name: Group,
    *,
    to: Annotated[str, typer.Option("--to", metavar="POSITION", help=f"Where to go on: {HELP}.")],
    topic: Annotated[
        list[str],
        typer.Option(metavar="TOPIC[:PARTITION]", help="Only this one; may be given often."),
    ] = [],  # noqa: B006 typer copies it
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change and change nothing.")
    ] = False,
    bootstrap: Bootstrap = kafka.DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Move the committed offsets of a group that has no members now."""
    try:
        position = parse_position(to, now_ms=int(time.time() * 1000))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--to") from None
    admin, metadata = kafka.connect(bootstrap)
    before = _committed(admin, name) if name in _all_groups(admin) else {}
    if not before and not topic:
        raise CommandFailed(
            f"group {name} has no committed offsets; say which topics with --topic TOPIC"
        )
    chosen = _chosen(topic, metadata) if topic else [TopicPartition(*key) for key in sorted(before)]
    kafka.check_topics({part.topic for part in chosen}, metadata)
    after = kafka.find_offsets(admin, chosen, position)
    if not dry_run:
        _commit(admin, name, after)
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
    bootstrap: Bootstrap = kafka.DEFAULT_BOOTSTRAP,
) -> None:
    """Delete groups that have no members, with their offsets."""
    admin, _ = kafka.connect(bootstrap)
    known = _all_groups(admin)
    for name in names:
        if name not in known:
            raise CommandFailed(kafka.unknown("group", name, known))
    futures = admin.delete_consumer_groups(names)
    for name in names:
        kafka.result(futures[name], f"cannot delete group {name}")
        tell(f"deleted {name}")


def _all_groups(admin: AdminClient) -> dict[str, str]:
    """The state of every group, by id."""
    listed = kafka.result(admin.list_consumer_groups(), "cannot list groups")
    if listed.errors:
        raise CommandFailed(f"cannot list groups: {kafka.reason(listed.errors[0])}")
    return {group.group_id: group.state.name for group in listed.valid}


def _describe(admin: AdminClient, name: str) -> ConsumerGroupDescription:
    known = _all_groups(admin)
    if name not in known:
        raise CommandFailed(kafka.unknown("group", name, known))
    futures = admin.describe_consumer_groups([name])
    group: ConsumerGroupDescription = kafka.result(futures[name], f"cannot describe group {name}")
    return group


def _member(member: Any) -> dict[str, object]:  # noqa: ANN401 a type that is not exported
    parts = sorted((part.topic, part.partition) for part in member.assignment.topic_partitions)
    return {
        "member": member.member_id,
        "instance": member.group_instance_id,
        "client": member.client_id,
        "host": member.host,
        "partitions": [f"{topic}-{partition}" for topic, partition in parts],
    }


def _committed(admin: AdminClient, name: str) -> dict[tuple[str, int], int]:
    futures = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)])
    answer = kafka.result(futures[name], f"cannot read the offsets of group {name}")
    return {
        (part.topic, part.partition): part.offset
        for part in answer.topic_partitions
        if part.offset >= 0
    }


def _progress(
    admin: AdminClient, name: str, owners: dict[tuple[str, int], str]
) -> list[dict[str, Any]]:
    """Offset, end and lag of every partition that the group committed to or has assigned."""
    committed = _committed(admin, name)
    keys = sorted(committed.keys() | owners.keys())
    limits = kafka.bounds(admin, [TopicPartition(*key) for key in keys])
    rows = []
    for key in keys:
        start, end = limits[key]
        offset = committed.get(key)
        row = {
            "topic": key[0],
            "partition": key[1],
            "offset": offset,
            "end": end,
            "lag": end - max(offset, start) if offset is not None else None,
            "consumer": owners.get(key),
        }
        rows.append(row)
    return rows


def _chosen(words: list[str], metadata: ClusterMetadata) -> list[TopicPartition]:
    """The partitions that `--topic TOPIC[:PARTITION]` names."""
    found = []
    for word in words:
        topic, colon, partition = word.partition(":")
        kafka.check_topics([topic], metadata)
        every = kafka.partitions_of(topic, metadata)
        if not colon:
            found += every
        elif partition.isdigit() and int(partition) < len(every):
            found.append(TopicPartition(topic, int(partition)))
        else:
            raise CommandFailed(
                f"{topic} has partitions 0 to {len(every) - 1}, and no {partition or '(empty)'}"
            )
    return found


def _commit(admin: AdminClient, name: str, offsets: dict[tuple[str, int], int]) -> None:
    parts = [TopicPartition(topic, index, offset) for (topic, index), offset in offsets.items()]
    request = ConsumerGroupTopicPartitions(name, parts)
    doing = f"cannot reset group {name}; are its consumers stopped?"
    answer = kafka.result(admin.alter_consumer_group_offsets([request])[name], doing)
    for part in answer.topic_partitions:
        if part.error is not None:
            raise CommandFailed(
                f"{doing} {part.topic}-{part.partition}: {kafka.reason(part.error)}"
            )

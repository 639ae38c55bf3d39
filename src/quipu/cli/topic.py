"""`quipu topic`: create, list, describe, alter and delete topics."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from quipu.cli.application import PLAIN
from quipu.cli.cluster import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    assignments,
    bounds,
    check_topics,
    connect,
    offline_text,
    partitions_of,
)
from quipu.cli.errors import CommandFailed
from quipu.cli.output import count, note, print_json, show
from quipu.cli.placement import placement_fields, table_fields
from quipu.cli.topic_migration import migrate
from quipu.client.admin import topics
from quipu.client.admin.placement import describe_placement
from quipu.client.admin.remote import describe_remote
from quipu.client.admin.topics import CreatedTopic, TopicDescription
from quipu.client.cluster import Cluster
from quipu.client.errors import BrokerRefused, NotServed
from quipu.model.ids import TopicPartition

app = typer.Typer(help="Create, list, describe, alter and delete topics.", **PLAIN)
app.command()(migrate)

Names = Annotated[list[str], typer.Argument(metavar="TOPIC", help="Names of topics.")]
Settings = Annotated[
    list[str],
    typer.Option("--config", "-c", metavar="KEY=VALUE", help="A setting; may be repeated."),
]


@app.command()
def create(
    names: Names,
    *,
    partitions: Annotated[
        int, typer.Option(min=-1, help="Number of partitions; -1: the broker's num.partitions.")
    ] = -1,
    replicas: Annotated[
        int, typer.Option(
            min=-1, help="Number of replicas; -1: the broker's default.replication.factor.")
    ] = -1,
    config: Settings = [],  # noqa: B006 typer copies it
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="A topic that exists already is no error.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Create topics."""
    if partitions == 0 or replicas == 0:
        raise typer.BadParameter("a topic has at least one partition and one replica")
    settings = assignments(config, "--config")
    with connect(bootstrap) as cluster:
        there = topics.describe_topics(cluster, names) if if_not_exists else {}
        created: dict[str, CreatedTopic] = {}
        refusals: list[BrokerRefused] = []
        for name in names:
            if name in there:
                continue
            try:
                created[name] = topics.create_topic(
                    cluster, name, partitions=partitions, replicas=replicas, settings=settings)
            except BrokerRefused as error:  # the other topics are still created
                refusals.append(error)
        for refusal in refusals:
            raise refusal
        for name in names:
            if name in created:
                _show_created(cluster, name, created[name], as_json=as_json)
            else:
                _show_there(there[name], as_json=as_json)


@app.command("list")
def list_(
    *,
    internal: Annotated[bool, typer.Option("--internal", help="Show internal topics too.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List topics."""
    with connect(bootstrap) as cluster:
        there = topics.describe_topics(cluster)
    rows = [
        {
            "topic": name,
            "partitions": len(topic.partitions),
            "replicas": min((len(each.replicas) for each in topic.partitions), default=0),
            "offline": sum(each.leader is None for each in topic.partitions),
        }
        for name, topic in sorted(there.items())
        if internal or not name.startswith("__")
    ]
    if not rows and not as_json:
        note("no topics yet; create one with `quipu topic create NAME`")
        return
    columns = ["topic", "partitions", "replicas"]
    if any(row["offline"] for row in rows):  # partitions without a leader
        columns.append("offline")
    show(rows, columns, as_json=as_json)


@app.command()
def describe(
    names: Names,
    *,
    every: Annotated[
        bool, typer.Option("--all", help="Also show settings that have their default values.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show partitions, offsets and settings of topics.

    Of a topic with a remote tier also which offsets are local (from `local_start` on) and which
    are copied (below `tiered`), and the bytes in each tier.  Of a diskless topic the bytes in
    objects, the effective replication factor, and how it is placed (see `quipu placement`).
    A partition without a leader is shown without offsets, and named in a note.
    """
    with connect(bootstrap) as cluster:
        there = topics.describe_topics(cluster)
        check_topics(names, there)
        for name in names:
            topic = _row(cluster, there[name])
            settings = topics.topic_settings(cluster, name)
            topic["diskless"] = topic["is_diskless"] = _is_on(settings, "diskless.enable")
            if topic["diskless"]:
                _add_placement(cluster, topic)
            if topic["diskless"] or _is_on(settings, "remote.storage.enable"):
                _add_tiers(cluster, there[name], topic)
            topic["config"] = _shown_settings(settings, every=every)
            if as_json:
                print_json(topic)
            else:
                _show_topic(topic)
            if offline := [TopicPartition(name, row["partition"]) for row in topic["partitions"]
                           if row["offline"]]:
                note(offline_text(offline))


@app.command()
def alter(
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of a topic.")],
    *,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="New number of partitions; it can only grow.")
    ] = None,
    config: Settings = [],  # noqa: B006
    reset: Annotated[
        list[str],
        typer.Option(
            "--reset", metavar="KEY",
            help="A setting to reset to the broker's default; may be repeated."),
    ] = [],  # noqa: B006
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Add partitions to a topic, or change its settings."""
    settings = assignments(config, "--config")
    if partitions is None and not settings and not reset:
        raise typer.BadParameter("nothing to change; give --partitions, --config or --reset")
    if twice := sorted(set(settings) & set(reset)):
        raise typer.BadParameter(f"{twice[0]} is both set and reset; keep one")
    with connect(bootstrap) as cluster:
        there = topics.describe_topics(cluster)
        check_topics([name], there)
        if settings or reset:
            topics.alter_topic_settings(cluster, name, settings, reset)
            note(f"altered {name}: {', '.join([*settings, *reset])}")
        if partitions is not None:
            _add_partitions(cluster, there[name], partitions)


@app.command()
def delete(
    names: Names,
    *,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete topics and all their records."""
    with connect(bootstrap) as cluster:
        check_topics(names, topics.describe_topics(cluster))  # if one is unknown, none is deleted
        for name in names:
            topics.delete_topic(cluster, name)
            note(f"deleted {name}")


def _show_created(cluster: Cluster, name: str, topic: CreatedTopic, *, as_json: bool) -> None:
    size = topic.partition_count or len(cluster.partitions([name]))
    if as_json:
        print_json(
            {"topic": name, "id": str(topic.topic_id), "partitions": size, "created": True})
    else:
        note(f"created {name} with {count(size, 'partition')}")


def _show_there(topic: TopicDescription, *, as_json: bool) -> None:
    if as_json:
        print_json({"topic": topic.name, "id": str(topic.topic_id),
                    "partitions": len(topic.partitions), "created": False})
    else:
        note(f"{topic.name} exists already")


def _row(cluster: Cluster, topic: TopicDescription) -> dict[str, Any]:
    """A topic as a JSON object, its offsets included."""
    limits = bounds(cluster, partitions_of(topic))
    rows = []
    for each in topic.partitions:
        found = limits.get(TopicPartition(topic.name, each.partition))
        row = {
            "partition": each.partition,
            "leader": None if found is None else each.leader,
            "replicas": list(each.replicas),
            "isr": list(each.in_sync),
            "start": None if found is None else found.start,
            "end": None if found is None else found.end,
            "records": None if found is None else found.end - found.start,
            "offline": found is None,
        }
        rows.append(row)
    return {"topic": topic.name, "id": str(topic.topic_id), "partitions": rows}


def _show_topic(topic: dict[str, Any]) -> None:
    columns = ["partition", "leader", "replicas", "isr", "start", "end", "records"]
    rows = topic["partitions"]
    if topic["diskless"]:
        columns += ["tiered", "object_bytes", "remote_bytes"]
        if "effective_rf" in topic:
            columns += ["target_racks", "assigned_racks", "coverage", "state", "exceptions"]
            rows = [table_fields(row) for row in rows]
    elif any("remote_bytes" in row for row in topic["partitions"]):
        columns += ["local_start", "tiered", "local_bytes", "remote_bytes"]
    kind = "  diskless" if topic["diskless"] else ""
    factor = f"  effective RF {topic['effective_rf']}" if "effective_rf" in topic else ""
    title = f"topic {topic['topic']}  id {topic['id']}{kind}{factor}"
    show(rows, columns, as_json=False, title=title)
    settings = [{"setting": key, "value": value} for key, value in topic["config"].items()]
    if settings:
        print()
        show(settings, ["setting", "value"], as_json=False)


def _shown_settings(
    found: Mapping[str, topics.TopicSetting], *, every: bool
) -> dict[str, str | None]:
    """A topic's settings: its own, or `every` one that applies to it."""
    return {key: setting.value for key, setting in sorted(found.items()) if every or setting.is_own}


def _is_on(settings: Mapping[str, topics.TopicSetting], name: str) -> bool:
    setting = settings.get(name)
    return setting is not None and setting.value == "true"


def _add_tiers(cluster: Cluster, topic: TopicDescription, row: dict[str, Any]) -> None:
    """Add the offsets and sizes of both tiers to the partitions of `row`."""
    for part, partition in zip(row["partitions"], partitions_of(topic), strict=True):
        if part["offline"]:
            part.update(dict.fromkeys(("local_start", "tiered", "local_bytes", "remote_bytes")))
            continue
        try:
            tier = describe_remote(cluster, partition, with_segments=False).bounds
        except NotServed:  # it is another Kafka broker, or an older Quipu
            return
        part |= {"local_start": tier.local_start, "tiered": tier.tiered_end,
                 "local_bytes": tier.local_bytes, "remote_bytes": max(tier.remote_bytes, 0)}
        if row["diskless"]:
            part["object_bytes"] = tier.object_bytes


def _add_placement(cluster: Cluster, row: dict[str, Any]) -> None:
    """Add to `row` and its partitions how a diskless topic is placed."""
    try:
        found = describe_placement(cluster, [row["topic"]]).get(row["topic"])
    except NotServed:  # it is another Kafka broker
        return
    if found is None or len(found.partitions) < len(row["partitions"]):
        return  # of an older Quipu, or changed meanwhile
    row["effective_rf"] = found.effective_rf
    for part, placed in zip(row["partitions"], found.partitions, strict=False):
        part.update(placement_fields(placed))


def _add_partitions(cluster: Cluster, topic: TopicDescription, wanted: int) -> None:
    now = len(topic.partitions)
    if wanted == now:
        note(f"{topic.name} has {count(now, 'partition')} already")
        return
    if wanted < now:
        raise CommandFailed(
            f"{topic.name} has {count(now, 'partition')}; their number can only grow")
    topics.create_partitions(cluster, topic.name, wanted)
    note(f"altered {topic.name}: {count(wanted, 'partition')}")

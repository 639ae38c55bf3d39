"""`quipu topic`: create, list, describe, alter and delete topics."""

from typing import Annotated, Any

import typer
from confluent_kafka import TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    TopicDescription,
)

from quipu.cli import kafka
from quipu.cli.application import PLAIN
from quipu.cli.errors import CommandFailed
from quipu.cli.kafka import AsJson, Bootstrap
from quipu.cli.output import count, print_json, show, tell

app = typer.Typer(help="Create, list, describe, alter and delete topics.", **PLAIN)

Names = Annotated[list[str], typer.Argument(metavar="TOPIC", help="Names of topics.")]
Settings = Annotated[
    list[str],
    typer.Option("--config", "-c", metavar="KEY=VALUE", help="A setting; may be given often."),
]


@app.command()
def create(
    names: Names,
    *,
    partitions: Annotated[
        int, typer.Option(min=-1, help="How many; -1 leaves it to the broker's num.partitions.")
    ] = -1,
    replicas: Annotated[
        int, typer.Option(min=-1, help="How many; -1 leaves it to default.replication.factor.")
    ] = -1,
    config: Settings = [],  # noqa: B006 typer copies it
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="A topic that is there already is no error.")
    ] = False,
    bootstrap: Bootstrap = kafka.DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Create topics."""
    if partitions == 0 or replicas == 0:
        raise typer.BadParameter("a topic has at least one partition and one replica")
    settings = kafka.assignments(config, "--config")
    admin, metadata = kafka.connect(bootstrap)
    there = [name for name in names if name in metadata.topics]
    wanted = [name for name in names if not (if_not_exists and name in there)]
    topics = [
        NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=settings)
        for name in wanted
    ]
    futures = admin.create_topics(topics) if topics else {}
    for name in wanted:
        kafka.result(futures[name], f"cannot create topic {name}")
    _tell_created(admin, names, wanted, as_json=as_json)


@app.command("list")
def list_(
    *,
    internal: Annotated[bool, typer.Option("--internal", help="Show internal topics too.")] = False,
    bootstrap: Bootstrap = kafka.DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List topics."""
    _, metadata = kafka.connect(bootstrap)
    rows = [
        {
            "topic": name,
            "partitions": len(topic.partitions),
            "replicas": min((len(each.replicas) for each in topic.partitions.values()), default=0),
        }
        for name, topic in sorted(metadata.topics.items())
        if internal or not name.startswith("__")
    ]
    if not rows and not as_json:
        tell("no topics yet; create one with `quipu topic create NAME`")
        return
    show(rows, ["topic", "partitions", "replicas"], as_json=as_json)


@app.command()
def describe(
    names: Names,
    *,
    every: Annotated[bool, typer.Option("--all", help="Show settings with defaults too.")] = False,
    bootstrap: Bootstrap = kafka.DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show partitions, offsets and settings of topics."""
    admin, metadata = kafka.connect(bootstrap)
    kafka.check_topics(names, metadata)
    for name in names:
        topic = _description(admin, name)
        topic["config"] = _settings(admin, name, every=every)
        if as_json:
            print_json(topic)
            continue
        parts = topic.pop("partitions")
        columns = ["partition", "leader", "replicas", "isr", "start", "end", "records"]
        show(parts, columns, as_json=False, title=f"topic {name}  id {topic['id']}")
        settings = [{"setting": key, "value": value} for key, value in topic["config"].items()]
        if settings:
            print()
            show(settings, ["setting", "value"], as_json=False)


@app.command()
def alter(
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of a topic.")],
    *,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="New number of partitions; it can only grow.")
    ] = None,
    config: Settings = [],  # noqa: B006
    reset: Annotated[
        list[str], typer.Option("--reset", metavar="KEY", help="Back to the broker's default.")
    ] = [],  # noqa: B006
    bootstrap: Bootstrap = kafka.DEFAULT_BOOTSTRAP,
) -> None:
    """Add partitions, change settings."""
    settings = kafka.assignments(config, "--config")
    if partitions is None and not settings and not reset:
        raise typer.BadParameter("nothing to change; give --partitions, --config or --reset")
    if twice := sorted(set(settings) & set(reset)):
        raise typer.BadParameter(f"{twice[0]} is both set and reset; keep one")
    admin, metadata = kafka.connect(bootstrap)
    kafka.check_topics([name], metadata)
    if settings or reset:
        _alter_settings(admin, name, settings, reset)
    if partitions is not None:
        _add_partitions(admin, name, len(metadata.topics[name].partitions), partitions)


@app.command()
def delete(
    names: Names,
    *,
    bootstrap: Bootstrap = kafka.DEFAULT_BOOTSTRAP,
) -> None:
    """Delete topics and all their records."""
    admin, metadata = kafka.connect(bootstrap)
    kafka.check_topics(names, metadata)  # all are there, or none is deleted
    futures = admin.delete_topics(names)
    for name in names:
        kafka.result(futures[name], f"cannot delete topic {name}")
        tell(f"deleted {name}")


def _tell_created(
    admin: AdminClient, names: list[str], created: list[str], *, as_json: bool
) -> None:
    for name in names:
        topic = _describe(admin, name)
        size = len(topic.partitions)
        if as_json:
            row = {
                "topic": name,
                "id": str(topic.topic_id),
                "partitions": size,
                "created": name in created,
            }
            print_json(row)
        elif name in created:
            tell(f"created {name} with {count(size, 'partition')}")
        else:
            tell(f"{name} is there already")


def _describe(admin: AdminClient, name: str) -> TopicDescription:
    futures = admin.describe_topics(TopicCollection([name]))
    topic: TopicDescription = kafka.result(futures[name], f"cannot describe topic {name}")
    return topic


def _description(admin: AdminClient, name: str) -> dict[str, Any]:
    """A topic as a JSON object, its offsets included."""
    topic = _describe(admin, name)
    partitions = sorted(topic.partitions, key=lambda each: each.id)
    limits = kafka.bounds(admin, [TopicPartition(name, each.id) for each in partitions])
    rows = []
    for each in partitions:
        start, end = limits[name, each.id]
        row = {
            "partition": each.id,
            "leader": getattr(each.leader, "id", None),  # there may be none
            "replicas": [node.id for node in each.replicas],
            "isr": [node.id for node in each.isr],
            "start": start,
            "end": end,
            "records": end - start,
        }
        rows.append(row)
    return {"topic": name, "id": str(topic.topic_id), "partitions": rows}


def _settings(admin: AdminClient, name: str, *, every: bool) -> dict[str, str | None]:
    """A topic's settings: its own, or `every` one that applies to it."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    (future,) = admin.describe_configs([resource]).values()
    entries = kafka.result(future, f"cannot read the settings of {name}")
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {
        key: entry.value for key, entry in sorted(entries.items()) if every or entry.source == own
    }


def _alter_settings(
    admin: AdminClient, name: str, settings: dict[str, str], reset: list[str]
) -> None:
    changes = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in settings.items()
    ]
    changes += [
        ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in reset
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=changes)
    (future,) = admin.incremental_alter_configs([resource]).values()
    kafka.result(future, f"cannot alter topic {name}")
    tell(f"altered {name}: {', '.join([*settings, *reset])}")


def _add_partitions(admin: AdminClient, name: str, now: int, wanted: int) -> None:
    if wanted == now:
        tell(f"{name} has {count(now, 'partition')} already")
        return
    if wanted < now:
        raise CommandFailed(f"{name} has {count(now, 'partition')}; their number can only grow")
    futures = admin.create_partitions([NewPartitions(name, wanted)])
    kafka.result(futures[name], f"cannot add partitions to {name}")
    tell(f"altered {name}: {count(wanted, 'partition')}")

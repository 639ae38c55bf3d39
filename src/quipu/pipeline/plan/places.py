"""Where the topics are, and that they are there."""

from collections.abc import Sequence
from dataclasses import replace

from quipu.model.topics import InvalidTopicName, check_topic_name
from quipu.pipeline.formats.regex import LINEAR
from quipu.pipeline.plan.connections import (
    KAFKA_OPTIONS,
    check_settings,
    find_connection,
    kafka_of,
    setting_text,
    settings_of,
)
from quipu.pipeline.plan.draft import Connections, Draft
from quipu.pipeline.plan.options import refresh_interval_ms
from quipu.pipeline.plan.world import Unreachable
from quipu.pipeline.reading.patterns import BadPattern, check_linear
from quipu.pipeline.source import Place
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.statements import KafkaPlace, Option
from quipu.pipeline.sql.text import in_one_line


def find_place(draft: Draft) -> Draft:
    """The cluster, how to log in to it, and which of its topics."""
    ours = [option for name, option in draft.options.items()
            if name in KAFKA_OPTIONS and name != "isolation level"]
    place = place_of(draft.statement.place, ours, draft.connections)
    settings = dict(place.options)
    prefix = draft.options.get("group id prefix")
    if prefix is not None:
        settings["group.id"] = f"{setting_text(prefix.value)}{draft.statement.name.text}"
    interval_ms = refresh_interval_ms(draft.options)
    if interval_ms is not None:
        settings["metadata.max.age.ms"] = str(interval_ms)
    return replace(draft, place=replace(place, options=settings))


def place_of(written: KafkaPlace, options: Sequence[Option], connections: Connections) -> Place:
    """A place, with the client's settings among the options: they win over the connection's."""
    bootstrap = written.broker or ""
    settings: dict[str, str] = {}
    if written.connection is not None:
        bootstrap, settings = kafka_of(
            find_connection(written.connection, connections, registry=False))
    for option in options:
        if KAFKA_OPTIONS[option.name] in ("bootstrap.servers", "metadata.broker.list"):
            raise SqlError("The brokers are given twice", option.span,
                           hint="leave it out: BROKER or CONNECTION says it")
    settings |= settings_of(options)
    check_settings(bootstrap, settings, options, written.span)
    _check_topics(written)
    return Place(bootstrap, written.topics, written.pattern, settings)


def count_partitions(draft: Draft) -> Draft:
    """Ask the cluster; topics that were named must exist."""
    written = draft.statement.place
    try:
        partitions = draft.world.partitions(draft.place)
    except Unreachable as error:
        raise SqlError(f"Kafka cannot be asked: {error}", written.span,
                       hint="check the broker's address and that it runs") from error
    missing = [topic for topic in written.topics if not partitions.get(topic)]
    if missing:
        raise SqlError(f"Topic does not exist: {missing[0]}", written.topics_span,
                       hint="create the topic first, or correct its name")
    return replace(draft, partitions=partitions)


def _check_topics(written: KafkaPlace) -> None:
    for topic in written.topics:
        try:
            check_topic_name(topic)
        except InvalidTopicName:
            raise SqlError(f'No topic can be called "{in_one_line(topic)}"', written.topics_span,
                           hint="names have letters, digits, dots, underscores and dashes"
                           ) from None
    if len(set(written.topics)) < len(written.topics):
        raise SqlError("A topic is named twice", written.topics_span, hint="name it once")
    if written.pattern is not None:
        try:
            check_linear(written.pattern)
        except BadPattern as error:
            raise SqlError(f"parsing regex: {error}", written.topics_span,
                           hint=f"correct the regular expression; {LINEAR}") from None

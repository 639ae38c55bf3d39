"""Pass: finds the cluster, the client's settings and the topics, and checks that they exist."""

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
from quipu.pipeline.plan.external_facts import Unreachable
from quipu.pipeline.plan.options import refresh_interval_ms
from quipu.pipeline.reading.patterns import BadPattern, check_linear
from quipu.pipeline.source import TopicLocation
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.statements import KafkaClause, Option
from quipu.pipeline.sql.text import in_one_line


def find_topic_location(draft: Draft) -> Draft:
    """Find the cluster, the client's settings, and the topics."""
    ours = [option for name, option in draft.options.items()
            if name in KAFKA_OPTIONS and name != "isolation level"]
    location = location_of(draft.statement.kafka, ours, draft.connections)
    settings = dict(location.options)
    prefix = draft.options.get("group id prefix")
    if prefix is not None:
        settings["group.id"] = f"{setting_text(prefix.value)}{draft.statement.name.text}"
    interval_ms = refresh_interval_ms(draft.options)
    if interval_ms is not None:
        settings["metadata.max.age.ms"] = str(interval_ms)
    return replace(draft, location=replace(location, options=settings))


def location_of(
    written: KafkaClause, options: Sequence[Option], connections: Connections,
) -> TopicLocation:
    """The location of a clause; settings of options override those of the connection."""
    bootstrap = written.broker or ""
    settings: dict[str, str] = {}
    if written.connection is not None:
        bootstrap, settings = kafka_of(
            find_connection(written.connection, connections, registry=False))
    for option in options:
        if KAFKA_OPTIONS[option.name] in ("bootstrap.servers", "metadata.broker.list"):
            raise SqlError("The brokers are given twice", option.span,
                           hint="leave it out: BROKER or CONNECTION gives them")
    settings |= settings_of(options)
    check_settings(bootstrap, settings, options, written.span)
    _check_topics(written)
    return TopicLocation(bootstrap, written.topics, written.pattern, settings)


def count_partitions(draft: Draft) -> Draft:
    """Find the numbers of partitions; raises SqlError if a named topic does not exist."""
    written = draft.statement.kafka
    try:
        partitions = draft.facts.partitions(draft.location)
    except Unreachable as error:
        raise SqlError(f"Kafka cannot be reached: {error}", written.span,
                       hint="check the broker's address and that it runs") from error
    missing = [topic for topic in written.topics if not partitions.get(topic)]
    if missing:
        raise SqlError(f"Topic does not exist: {missing[0]}", written.topics_span,
                       hint="create the topic first, or correct its name")
    return replace(draft, partitions=partitions)


def _check_topics(written: KafkaClause) -> None:
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

"""Specs of formats whose schemas are in a registry.

The subjects are the topic's name with -key and -value.  If a source has several topics, the schema
of the first is the reader's schema, to which messages of the others are resolved.
"""

from quipu.pipeline.formats.protobuf.format import ProtobufSchemaError, first_message
from quipu.pipeline.formats.specs import Avro, Protobuf, Registry
from quipu.pipeline.plan.connections import (
    find_connection,
    registry_at,
    registry_of,
    registry_settings_of,
)
from quipu.pipeline.plan.draft import Draft
from quipu.pipeline.plan.external_facts import RegistrySchema, Unreachable
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.statements import RegistryReference, Strategy
from quipu.pipeline.sql.text import TextSpan


def avro(draft: Draft, reference: RegistryReference, *, is_key: bool) -> Avro:
    """Avro with a registry: the reader's schema is the one that the strategy names."""
    strategy = reference.key if is_key else reference.value
    registry = _registry(draft, reference)
    if strategy is not None and strategy.schema is not None:
        return Avro(strategy.schema, registry=registry)
    return Avro(_schema(draft, reference, "AVRO", is_key=is_key).text, registry=registry)


def protobuf(draft: Draft, reference: RegistryReference, *, is_key: bool) -> Protobuf:
    """Protocol Buffers with a registry: the first message of the schema."""
    descriptors = _schema(draft, reference, "PROTOBUF", is_key=is_key).descriptors
    return Protobuf(descriptors, _first_message(descriptors, reference.span), framed=True)


def has_key(draft: Draft, reference: RegistryReference) -> bool:
    """Does the registry have a schema for keys?"""
    if reference.key is not None:
        return True
    return _ask(draft, reference, "key", None) is not None


def _registry(draft: Draft, reference: RegistryReference) -> Registry:
    url, settings = reference.url or "", registry_settings_of(reference.options)
    if reference.connection is not None:
        found = registry_of(find_connection(reference.connection, draft.connections,
                                            registry=True))
        url, settings = found.url, {**found.options, **settings}
    return registry_at(url, settings, reference.options, reference.span)


def _schema(
    draft: Draft, reference: RegistryReference, kind: str, *, is_key: bool,
) -> RegistrySchema:
    strategy = reference.key if is_key else reference.value
    part = "key" if is_key else "value"
    found = _ask(draft, reference, part, strategy)
    if found is None:
        raise SqlError(f"No {part} schema found", reference.span,
                       hint=f"register the subject {_subject(draft, part)}, or write {part.upper()}"
                            " STRATEGY INLINE '…'")
    if found.kind != kind:
        raise SqlError(f"The {part} schema in the registry is {found.kind}, not {kind}",
                       reference.span, hint=f"write FORMAT {found.kind}")
    return found


def _ask(draft: Draft, reference: RegistryReference, part: str,
         strategy: Strategy | None) -> RegistrySchema | None:
    schema_id = strategy.id if strategy is not None else None
    try:
        return draft.facts.schema(_registry(draft, reference), _subject(draft, part), schema_id)
    except Unreachable as error:
        raise SqlError(f"The schema registry cannot be reached: {error}", reference.span,
                       hint="check its address and that it runs") from error


def _subject(draft: Draft, part: str) -> str:
    topics = draft.statement.kafka.topics or sorted(draft.partitions)
    if not topics:
        raise SqlError("No topic matches yet, so the name of the schema's subject is unknown",
                       draft.statement.kafka.topics_span,
                       hint=f"create a topic first, or write {part.upper()} STRATEGY INLINE '…'")
    return f"{topics[0]}-{part}"


def _first_message(descriptors: bytes, span: TextSpan) -> str:
    try:
        return first_message(descriptors)
    except ProtobufSchemaError as error:
        raise SqlError(f"validating protobuf schema: {error}", span,
                       hint="write PROTOBUF MESSAGE '…' USING SCHEMA …") from None

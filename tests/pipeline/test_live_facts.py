"""The outside as it is: schema registries that serve, and files."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from quipu.pipeline import live_facts as outside
from quipu.pipeline.formats.avro.schema import columns_of, parse
from quipu.pipeline.formats.protobuf.format import first_message
from quipu.pipeline.formats.specs import Registry
from quipu.pipeline.live_facts import LiveFacts
from quipu.pipeline.plan.external_facts import RegistrySchema, Unreachable
from quipu.pipeline.registry import store
from quipu.pipeline.registry.client import RegistryClient, SchemaReference
from quipu.pipeline.registry.server import RegistryServer

MONEY = 'syntax = "proto3"; package shop; message Money { int64 cents = 1; }'
ORDER = """syntax = "proto3"; package shop; import "money.proto";
    message Order { string id = 1; Money price = 2; }"""
INNER = '{"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}'
OUTER = '{"type": "record", "name": "Outer", "fields": [{"name": "i", "type": "Inner"}]}'


@pytest.fixture
def registry() -> Iterator[Registry]:
    with RegistryServer() as server:
        yield Registry(server.url)


def test_schemas_come_with_all_that_they_refer_to(registry: Registry) -> None:
    """I10: of Avro as one text, of Protocol Buffers compiled from `.proto` text."""
    client = RegistryClient(registry)
    client.register("money", MONEY, "PROTOBUF")
    client.register("order", ORDER, "PROTOBUF", [SchemaReference("money.proto", "money", 1)])
    client.register("inner", INNER)
    number = client.register("outer", OUTER, references=[SchemaReference("Inner", "inner", 1)])
    client.register("document", '{"type": "object"}', "JSON")

    order = LiveFacts().schema(registry, "order", None)
    assert order is not None
    assert (order.kind, first_message(order.descriptors)) == ("PROTOBUF", "shop.Order")
    outer = LiveFacts().schema(registry, "whatever", number)
    assert outer is not None
    assert [column.name for column in columns_of(parse(outer.text))] == ["i"]
    assert LiveFacts().schema(registry, "document", None) == RegistrySchema(
        "JSON", '{"type": "object"}')
    assert LiveFacts().schema(registry, "other", None) is None
    assert LiveFacts().schema(registry, "order", 99) is None


@pytest.mark.parametrize(("text", "kind"), [("message {", "PROTOBUF"), ("{", "AVRO")])
def test_a_schema_that_is_none_is_said(text: str, kind: str) -> None:
    """I19: an answer that is no use is no crash, whatever a registry holds."""
    with RegistryServer() as server:
        uses = (store.StoredReference("r", "t", 1),)
        server.store.schemas = {1: store.StoredSchema(text, kind),
                                2: store.StoredSchema(text, kind, uses)}
        server.store.subjects = {"t": [store.SubjectVersion(1, 1)],
                                 "u": [store.SubjectVersion(1, 2)]}
        with pytest.raises(Unreachable):
            LiveFacts().schema(Registry(server.url), "u", None)


@pytest.mark.parametrize(("url", "options"), [
    ("r:8081", {}), ("http://r:no", {}), ("https://r", {"ssl.ca.location": "/no/such/file"}),
    ("http://127.0.0.1:1", {"timeout.ms": "100"})])
def test_a_registry_that_cannot_be_asked_is_unreachable(url: str, options: dict[str, str]) -> None:
    """I19: which CREATE SOURCE shows at the place that names it."""
    with pytest.raises(Unreachable):
        LiveFacts().schema(Registry(url, options), "t-value", None)


def test_files_are_read_up_to_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """I10: schemas in files."""
    path = tmp_path / "schema"
    path.write_bytes(b"12345678")
    monkeypatch.setattr(outside, "FILE_SIZE_MAX", 8)
    assert LiveFacts().file(str(path)) == b"12345678"
    path.write_bytes(b"123456789")
    with pytest.raises(Unreachable, match="more than 8 bytes"):
        LiveFacts().file(str(path))
    with pytest.raises(Unreachable, match="No such file"):
        LiveFacts().file(str(tmp_path / "other"))


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    """K8: a pipe that nobody writes into would hold up every other statement."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(Unreachable, match=r"no file|directory"):
            LiveFacts().file(str(path))
    with pytest.raises(Unreachable, match="null"):
        LiveFacts().file("a\0b")

"""The outside as it is: schema registries that serve, and files."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from quipu.pipeline import outside
from quipu.pipeline.formats.avro_schema import columns_of, parse
from quipu.pipeline.formats.protobuf import first_message
from quipu.pipeline.formats.specs import Registry
from quipu.pipeline.outside import Outside
from quipu.pipeline.plan.world import Schema, Unreachable
from quipu.pipeline.registry import store
from quipu.pipeline.registry.client import Reference, RegistryClient
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
    client.register("order", ORDER, "PROTOBUF", [Reference("money.proto", "money", 1)])
    client.register("inner", INNER)
    number = client.register("outer", OUTER, references=[Reference("Inner", "inner", 1)])
    client.register("document", '{"type": "object"}', "JSON")

    order = Outside().schema(registry, "order", None)
    assert order is not None
    assert (order.kind, first_message(order.descriptors)) == ("PROTOBUF", "shop.Order")
    outer = Outside().schema(registry, "whatever", number)
    assert outer is not None
    assert [column.name for column in columns_of(parse(outer.text))] == ["i"]
    assert Outside().schema(registry, "document", None) == Schema("JSON", '{"type": "object"}')
    assert Outside().schema(registry, "other", None) is None
    assert Outside().schema(registry, "order", 99) is None


@pytest.mark.parametrize(("text", "kind"), [("message {", "PROTOBUF"), ("{", "AVRO")])
def test_a_schema_that_is_none_is_said(text: str, kind: str) -> None:
    """I19: an answer that is no use is no crash, whatever a registry holds."""
    with RegistryServer() as server:
        uses = (store.Reference("r", "t", 1),)
        server.store.schemas = {1: store.Schema(text, kind), 2: store.Schema(text, kind, uses)}
        server.store.subjects = {"t": [store.Version(1, 1)], "u": [store.Version(1, 2)]}
        with pytest.raises(Unreachable):
            Outside().schema(Registry(server.url), "u", None)


@pytest.mark.parametrize(("url", "options"), [
    ("r:8081", {}), ("http://r:no", {}), ("https://r", {"ssl.ca.location": "/no/such/file"}),
    ("http://127.0.0.1:1", {"timeout.ms": "100"})])
def test_a_registry_that_cannot_be_asked_is_unreachable(url: str, options: dict[str, str]) -> None:
    """I19: which CREATE SOURCE shows at the place that names it."""
    with pytest.raises(Unreachable):
        Outside().schema(Registry(url, options), "t-value", None)


def test_files_are_read_up_to_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """I10: schemas in files."""
    path = tmp_path / "schema"
    path.write_bytes(b"12345678")
    monkeypatch.setattr(outside, "FILE_SIZE_MAX", 8)
    assert Outside().file(str(path)) == b"12345678"
    path.write_bytes(b"123456789")
    with pytest.raises(Unreachable, match="more than 8 bytes"):
        Outside().file(str(path))
    with pytest.raises(Unreachable, match="No such file"):
        Outside().file(str(tmp_path / "other"))


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    """K8: a pipe that nobody writes into would hold up every other statement."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(Unreachable, match=r"no file|directory"):
            Outside().file(str(path))
    with pytest.raises(Unreachable, match="null"):
        Outside().file("a\0b")

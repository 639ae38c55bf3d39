"""The backend that the documentation shows works: it is taken from there, loaded and used."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from quipu.remote.metadata.errors import ExpectationFailed, KeyExists
from quipu.remote.metadata.storage.backend import (
    CreateKey,
    ExpectValue,
    KeyValue,
    MetadataStorageBackend,
    RemoveKey,
    UpdateKey,
)
from tests.broker.tiering.test_tiering import COUNT, filled, read_all, tiered_node, values
from tests.harness.page_module import page_module
from tests.looped import looped

MODULE = "journal_backend"


@pytest.fixture
def classes(tmp_path: Path) -> Iterator[Path]:
    """A directory with the module of the page."""
    with page_module("operating/remote-metadata.md", tmp_path / "classes", MODULE) as folder:
        yield folder


@looped
async def test_a_node_stores_its_metadata_in_a_class_of_one_s_own(
    tmp_path: Path, classes: Path
) -> None:
    """R9: settings name the class and its directory; a restart finds what was stored."""
    journal = tmp_path / "metadata.jsonl"
    settings = {
        "remote_log_metadata_manager_class_path": str(classes),
        "rlmm_config_metadata_storage_connector_class": f"{MODULE}.JournalConnector",
        "rlmm_config_metadata_storage_url": f"journal:{journal}"}
    async with tiered_node(tmp_path, **settings) as node:
        await filled(node)
        assert await read_all(node, 0, COUNT) == values(range(COUNT))
    assert not (tmp_path / "data" / "remote-metadata.sqlite").exists()
    assert journal.read_text().count("/segments/") > 5
    with journal.open("a") as file:
        file.write('{"put": {"torn')
    async with tiered_node(tmp_path, **settings) as node:
        assert await read_all(node, 0, COUNT) == values(range(COUNT))


@looped
async def test_the_backend_of_the_page_keeps_the_rules(tmp_path: Path, classes: Path) -> None:
    """R9: all or nothing, and there after a restart."""
    sys.path.insert(0, str(classes))
    module = __import__(MODULE)
    path = tmp_path / "metadata.jsonl"
    backend: MetadataStorageBackend = module.JournalBackend(path)
    await backend.execute([CreateKey("a/b", b"1"), CreateKey("a/c", b"2"), CreateKey("ab", b"3")])
    with pytest.raises(ExpectationFailed):
        await backend.execute([RemoveKey("a/b"), ExpectValue("a/c", b"9")])
    with pytest.raises(KeyExists):
        await backend.create("a/b", b"9")
    await backend.create("a/b", b"1")
    await backend.execute([UpdateKey("a/c", b"4"), ExpectValue("ab", b"3")])
    again: MetadataStorageBackend = module.JournalBackend(path)
    assert sorted(await again.get_like("a")) == [KeyValue("a/b", b"1"), KeyValue("a/c", b"4")]
    await again.remove_like("a", expected=[ExpectValue("ab", b"3")])
    assert [await again.get(key) for key in ("a/b", "ab")] == [None, b"3"]

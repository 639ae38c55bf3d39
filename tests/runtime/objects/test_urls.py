"""URLs of object stores: which there are, and what is said of the others."""

from pathlib import Path

import pytest

from quipu.model.errors import QuipuError
from quipu.runtime.objects.cloud import CloudStore
from quipu.runtime.objects.local import LocalStore
from quipu.runtime.objects.memory import MemoryStore
from quipu.runtime.objects.urls import (
    URL_SIZE_MAX,
    StoreUrl,
    open_store,
    parse_store_url,
    public_url,
)
from tests.looped import looped


@pytest.mark.parametrize(("text", "url"), [
    ("file:///data/objects", StoreUrl("file", "/data/objects")),
    ("file:///with%20space", StoreUrl("file", "/with space")),
    ("memory:", StoreUrl("memory")),
    ("s3://bucket", StoreUrl("s3", "bucket")),
    ("s3://bucket/", StoreUrl("s3", "bucket")),
    ("gs://bucket/a/b/", StoreUrl("gs", "bucket", "a/b")),
    ("az://container/x", StoreUrl("az", "container", "x")),
])
def test_urls(text: str, url: StoreUrl) -> None:
    """What a URL says."""
    assert parse_store_url(text) == url


@pytest.mark.parametrize("text", [
    "", "bucket", "http://x/y", "file://host/path", "file:relative", "file:", "memory:x",
    "memory://x", "s3://", "s3:///x", "s3://user:swordfish@bucket", "s3://bucket:80",
    "s3://bucket?x=1", "file:///a?x=1", "memory:?x=1", "s3://bucket?region",
    "s3://bucket?secret=swordfish", "s3://u:swordfish@bucket?region=a",
    "s3://bucket/#x", "file:///a/../b", "file:///a%2f..%2fb", "file:///a%00", "s3://b/../c",
    "file:///" + "x" * URL_SIZE_MAX, "s3://[",
])
def test_what_is_no_store(text: str) -> None:
    """The error says what to write instead; it does not show a password."""
    with pytest.raises(QuipuError) as error:
        parse_store_url(text)
    assert "swordfish" not in str(error.value)
    assert len(str(error.value)) < 400


@looped
async def test_stores_are_opened(tmp_path: Path) -> None:
    """Those that are served."""
    store = open_store(f"file://{tmp_path}/new/folder", lambda: 1)
    assert isinstance(store, LocalStore)
    await store.put("a", [b"1"])
    assert (tmp_path / "new" / "folder" / "a").exists()
    await store.close()
    assert isinstance(open_store("memory:", lambda: 1), MemoryStore)


@pytest.mark.parametrize("text", [
    "s3://bucket/prefix?endpoint=http://127.0.0.1:9000&region=eu-central-1&path_style=true",
    "gs://bucket?endpoint=http://127.0.0.1:4443", "az://container/x?account=name"])
def test_stores_in_the_cloud_are_opened(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """R13: S3, GCS and Azure; nothing is sent before the first call."""
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "c3dvcmRmaXNo")
    assert isinstance(open_store(text, lambda: 1), CloudStore)


@pytest.mark.parametrize(("text", "shown"), [
    ("file:///data/objects", "file:///data/objects"),
    ("s3://b/p?region=x&credentials=/etc/secret&retries=2", "s3://b/p?region=x&retries=2"),
    ("s3://b/p?credentials=/etc/secret&ca=/etc/ca.pem", "s3://b/p"),
])
def test_other_machines_are_not_told_of_files(text: str, shown: str) -> None:
    """runtime.O7: nor where the credentials are; the URL is valid without them."""
    assert public_url(text) == shown
    parse_store_url(shown)

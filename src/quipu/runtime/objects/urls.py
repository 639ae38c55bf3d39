"""Opens the object store that a URL names.

    file:///ABSOLUTE/PATH    a directory of this machine, or of a file system that nodes share
    memory:                  a store in this process's memory, which ends with it
    s3://BUCKET/PREFIX       Amazon S3, or a server with the same interface
    gs://BUCKET/PREFIX       Google Cloud Storage
    az://CONTAINER/PREFIX    Azure Blob Storage

The last three may have parameters: ?name=value&name=value (parameters.py).
"""

from collections.abc import Callable
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from quipu.model.errors import SettingError
from quipu.runtime.objects.keys import check_key
from quipu.runtime.objects.local import LocalStore
from quipu.runtime.objects.memory import MemoryStore
from quipu.runtime.objects.parameters import OWN_FILES, StoreParameters, parse_parameters
from quipu.runtime.objects.store import ObjectStore

URL_SIZE_MAX: Final = 4096
FILE: Final = "file"
MEMORY: Final = "memory"
REMOTE: Final = {"s3": "bucket", "gs": "bucket", "az": "container"}  # scheme: where objects are
# Opens the store that a URL names; the second argument is the clock of a store in memory.
OpenStore = Callable[[str, Callable[[], int]], ObjectStore]
_ALLOWED: Final = (
    "write file:///ABSOLUTE/PATH, memory:, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or "
    "az://CONTAINER/PREFIX")


class StoreUrl(NamedTuple):
    """The parts of an object store's URL."""

    scheme: str
    place: str = ""  # a directory, a bucket or a container
    prefix: str = ""  # that every key begins with
    parameters: StoreParameters = StoreParameters()


def parse_store_url(text: str) -> StoreUrl:
    """The parts of a URL; SettingError if it is not valid."""
    try:
        url = urlsplit(text if len(text) <= URL_SIZE_MAX and text.isprintable() else "")
    except ValueError:
        url = urlsplit("")
    if "#" in text:
        raise _wrong(text, "it must not contain #")
    if "?" in text and url.scheme not in REMOTE:
        raise _wrong(text, "only s3://, gs:// and az:// stores have parameters in their URLs")
    if url.scheme == FILE:
        path = unquote(url.path)
        if url.netloc or not path.startswith("/") or "\0" in path or ".." in path.split("/"):
            raise _wrong(text, "its path must be absolute, without a host and without ..")
        return StoreUrl(FILE, path)
    if url.scheme == MEMORY:
        if url.netloc or url.path:
            raise _wrong(text, "nothing may follow memory:")
        return StoreUrl(MEMORY)
    if url.scheme in REMOTE:
        url_of = _remote(text, url.scheme, url.netloc, url.path.strip("/"))
        return url_of._replace(parameters=parse_parameters(url.scheme, url.query))
    raise _wrong(text, "its scheme is unknown")


def _remote(text: str, scheme: str, place: str, prefix: str) -> StoreUrl:
    if not place or "@" in place or ":" in place:
        raise _wrong(text, f"it must name a {REMOTE[scheme]} and no user, password or port")
    if prefix:
        check_key(prefix)
    return StoreUrl(scheme, place, prefix)


def open_store(text: str, now_ms: Callable[[], int]) -> ObjectStore:
    """Open the store that a URL names; `now_ms` is the clock of a store in memory."""
    url = parse_store_url(text)
    if url.scheme == FILE:
        return LocalStore(url.place)
    if url.scheme == MEMORY:
        return MemoryStore(now_ms)
    # Only here: whoever has no store in the cloud does not wait for the library to load.
    from quipu.runtime.objects.cloud import CloudStore  # noqa: PLC0415

    return CloudStore(url.scheme, url.place, url.prefix, url.parameters)


def public_url(text: str) -> str:
    """A store's URL for other machines: without the paths of files on this one."""
    place, question, query = text.partition("?")
    kept = [pair for pair in query.split("&") if pair.partition("=")[0] not in OWN_FILES]
    return f"{place}{question}{'&'.join(kept)}".rstrip("?")


def _wrong(text: str, why: str) -> SettingError:
    return SettingError(f"{_shown(text)} is not the URL of an object store: {why}; {_ALLOWED}")


def _shown(text: str) -> str:
    """A URL for an error message: without what might be a password (runtime.O7)."""
    scheme, separator, rest = text.partition("?")[0][:80].partition("://")
    return repr(scheme + separator + rest.rpartition("@")[2])

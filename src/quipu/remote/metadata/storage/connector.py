"""Makes a storage backend and its key factory, as settings say.

`rlmm.config.metadata.storage.connector.class` names a class, which is called with the settings that
begin with `rlmm.config.`, without that prefix.  The default is `UrlConnector`, which reads
`metadata.storage.url`.

    class MyConnector:
        def __init__(self, config: Mapping[str, str]) -> None: ...
        async def open_backend(self) -> MetadataStorageBackend: ...
        def key_factory(self) -> MetadataKeyFactory: ...
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol, runtime_checkable

from quipu.model.errors import SettingError
from quipu.remote.metadata.storage.backend import MetadataStorageBackend
from quipu.remote.metadata.storage.keys import MetadataKeyFactory, PathKeyFactory
from quipu.remote.metadata.storage.memory import MemoryBackend
from quipu.remote.metadata.storage.postgres import PostgresBackend
from quipu.remote.metadata.storage.sqlite import SqliteBackend
from quipu.remote.metadata.storage.urls import MEMORY, parse_metadata_url
from quipu.runtime.databases.urls import POSTGRESQL, SQLITE
from quipu.runtime.rng import Rng, SystemRng

STORAGE_URL: Final = "metadata.storage.url"


@runtime_checkable
class MetadataStorageConnector(Protocol):
    """Connects to a store of metadata."""

    async def open_backend(self) -> MetadataStorageBackend:
        """A backend that is ready for use."""
        ...

    def key_factory(self) -> MetadataKeyFactory:
        """The factory of the backend's keys."""
        ...


# Makes the backend of a scheme that this room cannot open by itself, such as `topic:`.
OpenBackend = Callable[[], MetadataStorageBackend]


class UrlConnector:
    """Opens the backend that the URL in `metadata.storage.url` names."""

    def __init__(
        self, config: Mapping[str, str], *, rng: Rng | None = None,
        schemes: Mapping[str, OpenBackend] | None = None,
    ) -> None:
        text = config.get(STORAGE_URL)
        if not text:
            raise SettingError(f"rlmm.config.{STORAGE_URL} is not set; it says where remote log "
                               "metadata is stored, such as sqlite:///ABSOLUTE/PATH")
        self._url = parse_metadata_url(text)
        self._rng = rng or SystemRng()
        self._schemes = schemes or {}

    async def open_backend(self) -> MetadataStorageBackend:
        scheme, place = self._url
        if scheme in self._schemes:
            return self._schemes[scheme]()
        if scheme == MEMORY:
            return MemoryBackend()
        if scheme == SQLITE:
            return SqliteBackend(place)
        if scheme == POSTGRESQL:
            return PostgresBackend(place, self._rng)
        raise SettingError(f"{scheme}: stores remote log metadata in an internal topic, which only "
                           "a broker can open; use sqlite:///ABSOLUTE/PATH or postgresql://... "
                           "here")

    def key_factory(self) -> MetadataKeyFactory:
        return PathKeyFactory()

"""The classes that settings name, also those of a user in a file outside of the package."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from quipu.model.errors import SettingError
from quipu.remote.metadata.factory import MANAGER_CLASS_DEFAULT, make_metadata_manager
from quipu.remote.metadata.interface import RemoteLogMetadataManager
from quipu.remote.metadata.manager import StoredRemoteLogMetadata
from quipu.remote.metadata.segment_metadata import TopicIdPartition
from quipu.remote.metadata.states import COPY_FINISHED
from quipu.remote.metadata.storage.memory import MemoryBackend
from quipu.remote.metadata.storage.postgres import PostgresBackend
from quipu.runtime.rng import SystemRng
from tests.harness.postgres import PostgresServer
from tests.looped import looped
from tests.remote.metadata.segments import fresh_partition, segment, update

URL = "rlmm.config.metadata.storage.url"
CONNECTOR = "rlmm.config.metadata.storage.connector.class"
SERIALIZER = "rlmm.config.metadata.storage.serializer.class"
TIMEOUT = "rlmm.config.metadata.storage.timeout.ms"
MANAGER = "remote.log.metadata.manager.class.name"
CLASS_PATH = "remote.log.metadata.manager.class.path"

# A user's program: a backend over a dictionary, with keys of its own and values in hexadecimal.
PROGRAM = '''
"""Remote log metadata in a dictionary."""

from quipu.remote.metadata.manager import StoredRemoteLogMetadata
from quipu.remote.metadata.serde import KafkaSerde
from quipu.remote.metadata.storage.backend import KeyValue, plan_operations
from quipu.remote.metadata.storage.keys import PathKeyFactory

STORES = {}


class Dictionary:
    def __init__(self, values):
        self.values = values

    async def create(self, key, value):
        raise AssertionError("not used")

    update = create

    async def get(self, key):
        return self.values.get(key)

    async def get_like(self, key):
        return [KeyValue(*each) for each in self.values.items() if each[0].startswith(key + "/")]

    async def remove_like(self, key, *, expected=()):
        plan_operations(expected, self.values)
        for each in await self.get_like(key):
            del self.values[each.key]

    async def execute(self, operations):
        plan = plan_operations(operations, self.values)
        self.values.update(plan.inserted + plan.updated)
        for key in plan.removed:
            del self.values[key]

    async def close(self):
        pass


class Keys(PathKeyFactory):
    def partition_key(self, partition):
        return f"mine/{partition.topic}/{partition.topic_id}/{partition.partition}"


class Connector:
    def __init__(self, config):
        self.values = STORES.setdefault(config["store.name"], {})

    async def open_backend(self):
        return Dictionary(self.values)

    def key_factory(self):
        return Keys()


class Hexadecimal(KafkaSerde):
    def serialize(self, value):
        return super().serialize(value).hex().encode()

    def deserialize(self, data):
        return super().deserialize(bytes.fromhex(data.decode()))


class Manager(StoredRemoteLogMetadata):
    pass


class Incomplete:
    def __init__(self, *arguments):
        pass


class Broken:
    def __init__(self, *arguments):
        raise RuntimeError("does not work")
'''


@pytest.fixture
def program(tmp_path: Path) -> Iterator[str]:
    """The name of the user's module, in a directory that Python does not know."""
    name = "users_program_" + tmp_path.name.replace("-", "_")
    (tmp_path / f"{name}.py").write_text(PROGRAM)
    yield name
    sys.modules.pop(name, None)
    if str(tmp_path) in sys.path:
        sys.path.remove(str(tmp_path))


async def _round_trip(manager: RemoteLogMetadataManager, partition: TopicIdPartition) -> None:
    await manager.open()
    await manager.on_partition_leadership_changes({partition: 1}, [])
    added = segment(partition, 0, 9)
    await manager.add_remote_log_segment_metadata(added)
    await manager.update_remote_log_segment_metadata(update(added, COPY_FINISHED))
    assert await manager.remote_log_segment_metadata(partition, 0, 5) == added.with_update(
        update(added, COPY_FINISHED))
    await manager.on_partition_leadership_changes({}, [partition])
    assert await manager.remote_log_segment_metadata(partition, 0, 5) is not None
    assert await manager.highest_offset_for_epoch(partition, 0) == 9
    assert len(await manager.list_remote_log_segments(partition, 0)) == 1
    await manager.close()


def _made(settings: dict[str, str]) -> RemoteLogMetadataManager:
    return make_metadata_manager(settings, broker_id=1, rng=SystemRng())


@looped
async def test_urls_name_the_backends(tmp_path: Path, postgres_server: PostgresServer) -> None:
    """R7, R9: memory, SQLite and PostgreSQL; nothing else needs to be set."""
    for url in ("memory:", f"sqlite://{tmp_path}/metadata.sqlite", postgres_server.url):
        manager = _made({URL: url, "unrelated": "1"})
        assert isinstance(manager, StoredRemoteLogMetadata)
        await _round_trip(manager, fresh_partition())
    assert MANAGER_CLASS_DEFAULT == "quipu.remote.metadata.manager.StoredRemoteLogMetadata"


@looped
async def test_a_users_classes_are_used(program: str, tmp_path: Path) -> None:
    """R8, R9: manager, connector, backend, keys and bytes, from a file outside of the package."""
    partition = fresh_partition()
    settings = {
        CLASS_PATH: str(tmp_path), MANAGER: f"{program}.Manager",
        CONNECTOR: f"{program}.Connector", SERIALIZER: f"{program}.Hexadecimal",
        "rlmm.config.store.name": "one"}
    manager = _made(settings)
    assert type(manager).__name__ == "Manager"
    await _round_trip(manager, partition)
    stored: dict[str, bytes] = sys.modules[program].STORES["one"]
    assert len(stored) == 4  # header, segment, reference, highest offset
    for key, value in stored.items():
        assert key.startswith(f"mine/foo/{partition.topic_id}/0/")
        assert bytes.fromhex(value.decode())[:1] == b"\x01"


@looped
async def test_a_broker_provides_the_topic() -> None:
    """R7, R9: without one, `topic:` is refused with what to use instead."""
    backend = MemoryBackend()
    await _round_trip(make_metadata_manager(
        {URL: "topic:"}, broker_id=0, rng=SystemRng(), schemes={"topic": lambda: backend}),
        fresh_partition())
    with pytest.raises(SettingError, match="only a broker can open; use sqlite"):
        await _made({URL: "topic:"}).open()


WRONG = [
    ({}, "storage.url is not set"),
    ({URL: "sqlite:relative"}, "absolute path"),
    ({URL: "memory:", TIMEOUT: "0"}, "from 1 to 86400000"),
    ({URL: "memory:", TIMEOUT: "-5"}, "milliseconds"),
    ({URL: "memory:", TIMEOUT: "٣"}, "milliseconds"),
    ({URL: "memory:", MANAGER: "NoModule"}, "write MODULE.CLASS"),
    ({URL: "memory:", MANAGER: "a b.C"}, "write MODULE.CLASS"),
    ({URL: "memory:", MANAGER: "quipu_nowhere.Class"}, "cannot be imported"),
    ({URL: "memory:", MANAGER: "quipu.remote.Nothing"}, "has no class Nothing"),
    ({URL: "memory:", MANAGER: "PROGRAM.Incomplete"}, "lacks methods"),
    ({URL: "memory:", CONNECTOR: "PROGRAM.Incomplete"}, "open_backend and key_factory"),
    ({URL: "memory:", SERIALIZER: "PROGRAM.Incomplete"}, "serialize and deserialize"),
    ({URL: "memory:", CONNECTOR: "PROGRAM.Broken"}, "Broken cannot be made .RuntimeError"),
    ({URL: "memory:", CONNECTOR: "PROGRAM.Connector"}, "Connector cannot be made .KeyError"),
    ({URL: "memory:", CLASS_PATH: "relative"}, "not the absolute path of a directory"),
    ({URL: "memory:", CLASS_PATH: "/nowhere/at/all"}, "not the absolute path of a directory"),
]


@pytest.mark.parametrize(("settings", "message"), WRONG, ids=[each[1] for each in WRONG])
def test_wrong_settings_are_named(
    program: str, tmp_path: Path, settings: dict[str, str], message: str
) -> None:
    """R9: what is wrong, and what to write."""
    named = {name: value.replace("PROGRAM", program) for name, value in settings.items()}
    with pytest.raises(SettingError, match=message):
        _made({CLASS_PATH: str(tmp_path)} | named)


def test_without_psycopg_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """R7, R9: only those that use PostgreSQL need it."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(SettingError, match=r"install quipu\[postgres\]"):
        PostgresBackend("postgresql://h/db", SystemRng())


def test_a_url_that_psycopg_refuses_is_not_shown() -> None:
    """R9: it may hold a password."""
    with pytest.raises(SettingError, match="not valid; write postgresql") as raised:
        PostgresBackend("postgresql://u:s3cret@h/db?nonsense=1", SystemRng())
    assert "s3cret" not in str(raised.value)
    assert raised.value.__cause__ is None

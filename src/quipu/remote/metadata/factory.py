"""Makes the remote log metadata manager that settings describe.

    remote.log.metadata.manager.class.name         a class; default: StoredRemoteLogMetadata
    remote.log.metadata.manager.class.path         directories in which classes are found, too
    rlmm.config.metadata.storage.url               where metadata is stored (storage/urls.py)
    rlmm.config.metadata.storage.connector.class   makes the backend; default: by the URL
    rlmm.config.metadata.storage.serializer.class  makes the bytes; default: Kafka's format
    rlmm.config.metadata.storage.timeout.ms        how long a write may take

Other names that begin with `rlmm.config.` are for the classes that are named.

Not here: defaults that depend on the node's directory (broker).
"""

from collections.abc import Callable, Mapping
from typing import Final

from quipu.model.errors import SettingError
from quipu.remote.class_names import add_class_path, construct, load_class
from quipu.remote.metadata.interface import ManagerContext, RemoteLogMetadataManager
from quipu.remote.metadata.manager import StoredRemoteLogMetadata
from quipu.remote.metadata.storage.connector import OpenBackend
from quipu.runtime.rng import Rng

MANAGER_CLASS: Final = "remote.log.metadata.manager.class.name"
MANAGER_CLASS_PATH: Final = "remote.log.metadata.manager.class.path"
CONFIG_PREFIX: Final = "rlmm.config."
MANAGER_CLASS_DEFAULT: Final = (
    f"{StoredRemoteLogMetadata.__module__}.{StoredRemoteLogMetadata.__qualname__}")


def make_metadata_manager(
    settings: Mapping[str, str], *, broker_id: int, rng: Rng,
    schemes: Mapping[str, OpenBackend] | None = None, cluster_id: Callable[[], str] = str,
) -> RemoteLogMetadataManager:
    """The manager that `settings` describe, not open yet; raises `SettingError`.

    `schemes` opens backends for which a broker is needed, such as `{"topic": open_topic_backend}`.
    `cluster_id` is called when the first partition is led.
    """
    add_class_path(settings.get(MANAGER_CLASS_PATH, ""), MANAGER_CLASS_PATH)
    name = settings.get(MANAGER_CLASS) or MANAGER_CLASS_DEFAULT
    config = {key.removeprefix(CONFIG_PREFIX): value for key, value in settings.items()
              if key.startswith(CONFIG_PREFIX)}
    made = construct(load_class(name, MANAGER_CLASS), MANAGER_CLASS, ManagerContext(
        broker_id=broker_id, config=config, rng=rng, schemes=schemes or {},
        cluster_id=cluster_id))
    if not isinstance(made, RemoteLogMetadataManager):
        raise SettingError(f"{MANAGER_CLASS}: {name} lacks methods of RemoteLogMetadataManager")
    return made

"""Names of Kafka that are made of a prefix and another name.

    listener.name.LISTENER.NAME            NAME for one listener alone
    listener.name.LISTENER.MECHANISM.NAME  the same, for one mechanism of SASL
    config.providers.PROVIDER...           settings of a config provider
    metrics.jmx....                        settings of a reporter of metrics
    rlmm.config.remote.log.metadata....    settings of the topic of remote segments' metadata

Not here: settings of classes that other settings name (settings_sources).
"""

from typing import Final

from quipu.model.kafka_settings.cluster import CLUSTER
from quipu.model.kafka_settings.groups import GROUPS
from quipu.model.kafka_settings.honoured import HONOURED_BROKER
from quipu.model.kafka_settings.node import NODE
from quipu.model.kafka_settings.rows import KafkaSetting, SettingVerdict, no_effect
from quipu.model.kafka_settings.security import SECURITY

LISTENER: Final = "listener.name."
PROVIDERS: Final = "config.providers"
_FOR_ALL: Final = "it holds for all listeners together: set {} without the prefix"
_ROWS: Final = {
    row.name: row for row in (*HONOURED_BROKER, *SECURITY, *CLUSTER, *GROUPS, *NODE)}
_FAMILIES: Final = {  # what names begin with, and a row that stands for all of them
    "metrics.jmx.": no_effect(
        "metrics are served at metrics.listener in the format of Prometheus",
        "metrics.jmx.  string  null  read-only")[0],
    "rlmm.config.remote.log.metadata.": no_effect(
        "the metadata of remote segments is written by the nodes themselves, without clients",
        "rlmm.config.remote.log.metadata.  string  null  read-only")[0],
}


def find_prefixed(name: str) -> KafkaSetting | None:
    """The row of a name that begins with a prefix of Kafka; None if it does not."""
    if name.startswith(LISTENER):
        return _of_listener(name)
    if name.startswith(f"{PROVIDERS}."):
        return _ROWS[PROVIDERS]._replace(name=name)
    for prefix, row in _FAMILIES.items():
        if name.startswith(prefix) and len(name) > len(prefix):
            return row._replace(name=name)
    return None


def _of_listener(name: str) -> KafkaSetting | None:
    _, dot, rest = name.removeprefix(LISTENER).partition(".")
    row = _ROWS.get(rest) or _ROWS.get(rest.partition(".")[2])
    if not dot or row is None:
        return None
    if row.verdict is SettingVerdict.HONOURED:
        return row._replace(name=name, verdict=SettingVerdict.NO_EFFECT, default=None,
                            is_required=False, why=_FOR_ALL.format(row.name))
    return row._replace(name=name, default=None)

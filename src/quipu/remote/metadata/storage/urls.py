"""The URL that says where remote log metadata is stored: `rlmm.config.metadata.storage.url`.

    sqlite:///ABSOLUTE/PATH                   a SQLite file of this machine
    postgresql://USER:PASSWORD@HOST/DATABASE  a PostgreSQL database
    memory:                                   this process's memory, which ends with it
    topic:                                    an internal topic; only a broker can open it

An error shows the path of a file, and of other URLs the scheme: the rest may hold a password.
"""

from typing import Final

from quipu.runtime.databases.urls import DatabaseUrl, UrlRules

MEMORY: Final = "memory"
TOPIC: Final = "topic"
_RULES: Final = UrlRules(
    "remote log metadata",
    "write sqlite:///ABSOLUTE/PATH, postgresql://USER:PASSWORD@HOST/DATABASE, memory: or topic:",
    bare_schemes=(MEMORY, TOPIC))


def parse_metadata_url(text: str) -> DatabaseUrl:
    """The parts of a URL; raises `SettingError` if it is not valid."""
    return _RULES.parse(text)

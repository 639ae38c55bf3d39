"""The URL that says where the control plane is: `diskless.control.plane.url`.

    sqlite:///ABSOLUTE/PATH                   a SQLite file of this machine: for one node
    postgresql://USER:PASSWORD@HOST/DATABASE  a PostgreSQL database: for a cluster

An error shows the path of a file, and of other URLs the scheme: the rest may hold a password.
"""

from typing import Final
from urllib.parse import urlsplit

from quipu.diskless.control_plane.interface import ControlPlane
from quipu.diskless.control_plane.postgres import PostgresControlPlane
from quipu.diskless.control_plane.sqlite import SqliteControlPlane
from quipu.model.errors import SettingError
from quipu.runtime.databases.urls import SQLITE, DatabaseUrl, UrlRules
from quipu.runtime.rng import Rng

_RULES: Final = UrlRules(
    "the control plane",
    "write sqlite:///ABSOLUTE/PATH, or for a cluster postgresql://USER:PASSWORD@HOST/DATABASE")


def parse_control_plane_url(text: str) -> DatabaseUrl:
    """The parts of a URL; raises `SettingError` if it is not valid."""
    return _RULES.parse(text)


def open_control_plane(url: str, *, rng: Rng) -> ControlPlane:
    """The control plane that a URL names; nothing connects before its `open`."""
    scheme, place = parse_control_plane_url(url)
    return SqliteControlPlane(place) if scheme == SQLITE else PostgresControlPlane(place, rng)


def public_url(text: str) -> str:
    """A URL for people: a path is shown; of a database the host and the name, no user."""
    try:
        scheme, place = parse_control_plane_url(text)
    except SettingError:
        return _RULES.shown(text)
    if scheme == SQLITE:
        return f"sqlite://{place}"
    url = urlsplit(place)
    hosts = url.netloc.rpartition("@")[2]
    return f"postgresql://{hosts}{url.path}"

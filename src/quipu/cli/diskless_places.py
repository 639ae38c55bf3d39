"""Opens the control plane and the object store of diskless topics that a command names."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import typer

from quipu.cli.errors import CommandFailed
from quipu.diskless.control_plane.interface import ControlPlane
from quipu.diskless.control_plane.urls import open_control_plane, parse_control_plane_url
from quipu.runtime.clock import SystemClock
from quipu.runtime.databases.urls import SQLITE
from quipu.runtime.objects.store import ObjectStore
from quipu.runtime.objects.urls import FILE, open_store, parse_store_url
from quipu.runtime.rng import SystemRng

ControlPlaneOption = Annotated[
    str,
    typer.Option("--control-plane", metavar="URL", envvar="QUIPU_DISKLESS_CONTROL_PLANE",
                 show_envvar=False,
                 help="Control plane: sqlite:///ABSOLUTE/PATH or postgresql://USER@HOST/DATABASE; "
                      "or set QUIPU_DISKLESS_CONTROL_PLANE, which other users do not see."),
]
StorageOption = Annotated[
    str,
    typer.Option("--storage", metavar="URL",
                 help="Object store: the brokers' diskless.storage.url, such as s3://BUCKET/PREFIX "
                      "or file:///ABSOLUTE/PATH."),
]


@asynccontextmanager
async def opened_store(url: str) -> AsyncIterator[ObjectStore]:
    """The store at a URL; it is closed at the end."""
    _check_directory(url)
    store = open_store(url, SystemClock().now_ms)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def opened_plane(url: str, *, must_exist: bool) -> AsyncIterator[ControlPlane]:
    """The control plane at a URL, connected; it is closed at the end."""
    _check_file(url, must_exist=must_exist)
    plane = open_control_plane(url, rng=SystemRng())
    await plane.open()
    try:
        yield plane
    finally:
        await plane.close()


def _check_directory(url: str) -> None:
    parsed = parse_store_url(url)
    if parsed.scheme == FILE and not Path(parsed.place).is_dir():
        raise CommandFailed(f"{url} is not a directory of this machine; run this where it is, or "
                            "correct --storage")


def _check_file(url: str, *, must_exist: bool) -> None:
    scheme, place = parse_control_plane_url(url)
    if must_exist and scheme == SQLITE and not Path(place).is_file():
        raise CommandFailed(f"there is no control plane at {place}; correct --control-plane")

"""`quipu diskless objects`: what the control plane knows beside what the store has.

    in use    the control plane reads batches from it
    marked    nothing refers to it: it is deleted after the grace period
    receipts  it has no batches, but offsets of those in other objects: for a rebuild
    new       stored within the last minute, and not committed yet
    orphan    stored, and never committed: it is deleted after the grace period
    missing   the control plane reads from it, and it is not in the store: records are lost
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final, NamedTuple

import typer

from quipu.cli.cluster import AsJson
from quipu.cli.diskless_places import (
    ControlPlaneOption,
    StorageOption,
    opened_plane,
    opened_store,
)
from quipu.cli.main import EXIT_FAILED
from quipu.cli.output import count, note, show
from quipu.cli.remote import human_age, human_size
from quipu.diskless.control_plane.interface import LIMIT_MAX, ControlPlane, ObjectState
from quipu.diskless.objects.names import OBJECTS_PREFIX, RECEIPTS_PREFIX, find_name, has_batches
from quipu.runtime.clock import SystemClock
from quipu.runtime.objects.store import ObjectInfo, ObjectStore

NEW_MS: Final = 60_000
IN_USE, MARKED, RECEIPTS, NEW, ORPHAN, MISSING = (
    "in use", "marked", "receipts", "new", "orphan", "missing")
_COLUMNS: Final = ("key", "state", "size", "live", "runs", "age", "node")


class ListedObject(NamedTuple):
    """An object in the store, in the control plane, or in both."""

    key: str
    stored: ObjectInfo | None
    known: ObjectState | None


def objects(
    *,
    control_plane: ControlPlaneOption,
    storage: StorageOption,
    as_json: AsJson = False,
) -> None:
    """List objects: key, state, size, bytes and runs in use, age.

    States: in use, marked (for deletion), receipts, new, orphan (never committed), missing.  The
    exit code is 1 if an object that is in use is missing.
    """
    rows = asyncio.run(_list(control_plane, storage))
    states = [row["state"] for row in rows]
    size = sum(row["size"] for row in rows)
    if not as_json:
        rows = [{**row, "size": human_size(row["size"]), "live": human_size(row["live"]),
                 "age": human_age(row["age"])} for row in rows]
    if rows:
        show(rows, _COLUMNS, as_json=as_json)
    if not as_json:
        kinds = [f"{states.count(state):,} {state}" for state in
                 (IN_USE, MARKED, RECEIPTS, NEW, ORPHAN, MISSING) if state in states]
        note(f"{count(len(rows), 'object')} of {human_size(size)}: {', '.join(kinds) or 'none'}")
    if MISSING in states:
        raise typer.Exit(EXIT_FAILED)


async def _list(control_plane: str, storage: str) -> list[dict[str, Any]]:
    now_ms = SystemClock().now_ms()
    async with opened_store(storage) as store, \
            opened_plane(control_plane, must_exist=True) as plane:
        # First the store: what is committed meanwhile is known when the control plane is asked.
        stored = {info.key: info async for info in _stored(store)}
        known = {state.key: state async for state in _known(plane)}
        found = [ListedObject(key, stored.get(key), known.get(key))
                 for key in sorted(stored.keys() | known.keys())]
        # What is gone from the store was deleted meanwhile, or is missing: ask again.
        absent = [each.key for each in found if each.stored is None]
        still = set[str]()
        for first in range(0, len(absent), LIMIT_MAX):
            still |= await plane.known_objects(absent[first : first + LIMIT_MAX])
        written = {key for key in still if await _exists(store, key)}
    return [_row(each, now_ms) for each in found
            if each.stored is not None or (each.key in still and each.key not in written)]


async def _stored(store: ObjectStore) -> AsyncIterator[ObjectInfo]:
    for prefix in (OBJECTS_PREFIX, RECEIPTS_PREFIX):
        after = None
        while True:
            page = await store.list(prefix, after=after)
            for info in page.objects:
                if find_name(info.key) is not None:
                    yield info
            after = page.after
            if after is None:
                break


async def _known(plane: ControlPlane) -> AsyncIterator[ObjectState]:
    after = ""
    while page := await plane.objects(after=after):
        for state in page:
            yield state
        after = page[-1].key


async def _exists(store: ObjectStore, key: str) -> bool:
    page = await store.list(key, limit=1)
    return bool(page.objects) and page.objects[0].key == key


def _row(each: ListedObject, now_ms: int) -> dict[str, Any]:
    """An object as a JSON object."""
    name, stored, known = find_name(each.key), each.stored, each.known
    since_ms = known.committed_ms if known is not None else (
        stored.modified_ms if stored is not None else now_ms)
    return {
        "key": each.key,
        "state": _state(each, now_ms),
        "size": stored.size if stored is not None else known.size if known is not None else 0,
        "live": known.live_size if known is not None else 0,
        "runs": known.run_count if known is not None else 0,
        "age": max(0, now_ms - since_ms) // 1000,
        "node": name.node_id if name is not None else None,
        "marked": known.marked_ms if known is not None else None,
    }


def _state(each: ListedObject, now_ms: int) -> str:
    if each.known is not None:
        if each.known.marked_ms is not None:
            return MARKED
        return IN_USE if each.stored is not None else MISSING
    if not has_batches(each.key):
        return RECEIPTS
    assert each.stored is not None
    return NEW if now_ms - each.stored.modified_ms < NEW_MS else ORPHAN

"""A store says which control plane its objects belong to.

To another control plane all of them would look like orphans: if two clusters share a store, or if
the database was lost and a new one begun.  So each leaves its identity in the store, and deletes no
orphans there while that of another is there, too.  A rebuild of the control plane from the objects
ends with `adopt`.

Invariant
    diskless.cleaning.W1  orphans are deleted only by a control plane that alone owns the store
"""

from contextlib import suppress
from typing import Final
from uuid import UUID

from quipu.diskless.control_plane.interface import ControlPlane
from quipu.runtime.log_limits import LimitedLog
from quipu.runtime.objects.errors import PreconditionFailed
from quipu.runtime.objects.store import ObjectStore

MARKS_PREFIX: Final = "planes/"


def mark_key(identity: UUID) -> str:
    """The key under which a control plane leaves its identity."""
    return f"{MARKS_PREFIX}{identity}"


async def mark(store: ObjectStore, plane: ControlPlane) -> None:
    """Leave the identity of the control plane in the store; before anything is written there."""
    key = mark_key(await plane.identity())
    with suppress(PreconditionFailed):  # from an earlier start, or another node
        await store.put(key, [b""], if_absent=True)


async def others(store: ObjectStore, plane: ControlPlane) -> list[str]:
    """The marks of other control planes (diskless.cleaning.W1)."""
    own = mark_key(await plane.identity())
    page = await store.list(MARKS_PREFIX)
    return [each.key for each in page.objects if each.key != own]


async def is_alone(store: ObjectStore, plane: ControlPlane, limited: LimitedLog) -> bool:
    """Whether the store belongs to this control plane alone (diskless.cleaning.W1); marks it."""
    await mark(store, plane)
    found = await others(store, plane)
    if found:
        limited.warning(
            "shared store", "the store of diskless topics is marked by another control plane (%s):"
            " no orphans are deleted. Give each cluster a prefix of its own; if the database was"
            " lost, run `quipu diskless rebuild`", ", ".join(found[:3]))
    return not found


async def adopt(store: ObjectStore, plane: ControlPlane) -> None:
    """Make the control plane the only owner: it was rebuilt from the objects, and knows them."""
    await mark(store, plane)
    gone = await others(store, plane)
    if gone:
        await store.delete(gone)

"""What deleted objects said about objects that stay is written once more.

An object's footer has receipts: the offsets of batches in earlier objects of its writer; and notes
of the bounds of logs.  A lost control plane is rebuilt from them.  So before an object is deleted,
what is still needed of them is written into an object that has receipts alone.  Such objects are
merged when they are many, and deleted when nothing needs them.

Invariants
    diskless.cleaning.R1  of every object that the control plane knows, whose own footer has no
                          offsets, some object in the store has the receipt, if there ever was one
    diskless.cleaning.R2  an object of receipts is merged or deleted only when it is older than the
                          grace period of orphans, and only by the owner of the store: a control
                          plane that was lost or restored must not take away what rebuilds it
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from quipu.diskless.cleaning.orphans import is_aged
from quipu.diskless.cleaning.ownership import is_alone
from quipu.diskless.cleaning.services import CleaningServices
from quipu.diskless.control_plane.interface import LIMIT_MAX
from quipu.diskless.errors import CorruptObject
from quipu.diskless.objects.encoding import encode_object
from quipu.diskless.objects.footer import ObjectFooter
from quipu.diskless.objects.names import RECEIPTS_PREFIX, find_name
from quipu.diskless.objects.reading import read_footer
from quipu.diskless.objects.receipts import LogNote, Receipt, receipts_to_keep
from quipu.diskless.values import LogKey
from quipu.model.errors import UnknownFormat
from quipu.runtime.objects.errors import ObjectNotFound
from quipu.runtime.objects.store import ObjectInfo

READS_MAX: Final = 8  # at a time
MERGED_MIN: Final = 16  # objects of receipts that are worth one new one
MERGED_SIZE_MAX: Final = 1 << 20  # bytes of one that is merged again
NUMBERS_MAX: Final = 500_000  # offsets in one new object of receipts
PAUSE_SECONDS: Final = 0.02
PAGES_MAX: Final = 10  # of the listing, in one pass


class Needed(NamedTuple):
    """What has to be kept of some footers."""

    receipts: list[Receipt]
    notes: list[LogNote]


def portions(receipts: Sequence[Receipt]) -> list[list[Receipt]]:
    """The receipts in portions of at most NUMBERS_MAX offsets, or of one receipt."""
    found: list[list[Receipt]] = [[]]
    count = 0
    for receipt in receipts:
        if found[-1] and count + len(receipt.offsets) > NUMBERS_MAX:
            found.append([])
            count = 0
        found[-1].append(receipt)
        count += len(receipt.offsets)
    return found


class Receipts:
    """Keeps the receipts that are needed, in few objects."""

    def __init__(self, services: CleaningServices) -> None:
        self._store = services.store
        self._plane = services.plane
        self._clock = services.clock
        self._new_name = services.new_name
        self._log = services.log
        self._limits = services.limits
        self._stats = services.stats
        self._after: str | None = None  # where the next pass goes on

    async def keep(self, keys: Sequence[str]) -> set[str]:
        """Store what must stay of objects that are about to be deleted (diskless.cleaning.R1).

        Returns the keys of those whose footers cannot be read.
        """
        damaged: set[str] = set()
        footers = await self._footers(((key, None) for key in keys), damaged)
        needed = await self._needed(footers.values(), going=frozenset(keys))
        await self._write(needed)
        return damaged

    async def run(self) -> None:
        """One pass over the objects of receipts (diskless.cleaning.R2)."""
        if not await is_alone(self._store, self._plane, self._log):
            return
        for _ in range(PAGES_MAX):
            page = await self._store.list(RECEIPTS_PREFIX, after=self._after)
            now_ms, grace_ms = self._clock.now_ms(), self._limits.orphan_grace_ms
            aged = [info for info in page.objects if find_name(info.key) is not None
                    and info.size <= MERGED_SIZE_MAX
                    and is_aged(info, now_ms=now_ms, grace_ms=grace_ms)]
            if aged:
                await self._merge(aged)
            self._after = page.after
            if page.after is None:
                return
            await asyncio.sleep(PAUSE_SECONDS)

    async def _merge(self, infos: Sequence[ObjectInfo]) -> None:
        """Replace objects of receipts by fewer, or by none."""
        footers = await self._footers([(info.key, info.size) for info in infos])
        needed = await self._needed(footers.values(), going=frozenset())
        # Of each, either all that is needed lies in the new object, or it stays as it is.
        is_empty = not needed.receipts and not needed.notes
        if not is_empty and len(footers) < MERGED_MIN:
            return
        await self._write(needed)
        if footers:
            await self._store.delete(list(footers))
            self._stats.receipts_deleted += len(footers)

    async def _footers(
        self, objects: Iterable[tuple[str, int | None]], damaged: set[str] | None = None
    ) -> dict[str, ObjectFooter]:
        """The footers of objects, without those that are gone or damaged; sizes may be unknown.

        The keys of damaged ones are added to `damaged`.
        """
        gate = asyncio.Semaphore(READS_MAX)
        found: dict[str, ObjectFooter] = {}

        async def read(key: str, size: int | None) -> None:
            async with gate:
                try:
                    known = size if size is not None else (await self._store.head(key)).size
                    found[key] = await read_footer(self._store, key, known)
                except ObjectNotFound:
                    pass  # deleted by an earlier pass, which ended before it said so
                except (CorruptObject, UnknownFormat) as error:
                    self._stats.damaged_objects += 1
                    if damaged is not None:
                        damaged.add(key)
                    self._log.warning("damaged footer", "cannot keep the receipts of %s", error)

        await asyncio.gather(*(read(key, size) for key, size in objects))
        return found

    async def _needed(
        self, footers: Iterable[ObjectFooter], *, going: frozenset[str]
    ) -> Needed:
        """The receipts for objects that stay, and the bounds of the logs that exist."""
        footers = list(footers)
        receipts = [receipt for footer in footers for receipt in footer.receipts]
        targets = sorted({receipt.name.key for receipt in receipts} - going)
        known: set[str] = set()
        for first in range(0, len(targets), LIMIT_MAX):
            known |= await self._plane.known_objects(targets[first:first + LIMIT_MAX])
        logs = sorted({note.log for footer in footers for note in footer.notes}
                      | {each.coordinates.log for footer in footers for each in footer.batches})
        kept = receipts_to_keep(receipts, lambda name: name.key in known)
        return Needed(kept, await self._notes(logs))

    async def _notes(self, logs: Sequence[LogKey]) -> list[LogNote]:
        """The bounds of logs as they are now, which are no lower than those that were noted."""
        notes = []
        for first in range(0, len(logs), LIMIT_MAX):
            some = logs[first:first + LIMIT_MAX]
            for log, bounds in zip(some, await self._plane.bounds(some), strict=True):
                if bounds is not None:
                    notes.append(LogNote(log, bounds.log_start_offset, bounds.high_watermark))
        return notes

    async def _write(self, needed: Needed) -> None:
        if not needed.receipts and not needed.notes:
            return
        notes = needed.notes
        for portion in portions(needed.receipts):
            new = encode_object(self._new_name(), (), created_ms=self._clock.now_ms(),
                                receipts=portion, notes=notes)
            await self._store.put(new.key, new.buffers, if_absent=True)
            self._stats.receipts_kept += len(portion)
            notes = []

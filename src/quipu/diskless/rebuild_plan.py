"""Which offsets the batches of objects have, from the objects alone: a pure function.

What is known for certain comes first: offsets in the footers of rewritten objects, and receipts.
The last objects of a writer that ended without warning have none.  Their commits, if there were
any, left offsets that nothing else has: batches that fit such a gap are placed there, if time and
the order of their writer allow it, first those that fill one exactly; and the others after the end
of the log.

Invariants
    diskless.B1  a batch whose offset is known gets it, or a copy of it does
    diskless.B2  a batch without a receipt is placed, unless it is a duplicate by its producer's
                 sequences: it may have been acknowledged
    diskless.B3  the offsets from `diskless_start` to the high watermark are those of batches and of
                 gaps, each of one; the bounds are not lower than any that a commit has returned
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from quipu.diskless.objects.footer import NO_OFFSET, FooterBatch, ObjectFooter
from quipu.diskless.objects.names import ObjectName
from quipu.diskless.objects.receipts import LogNote, duplicate_of, merge_notes
from quipu.diskless.values import BatchCoordinates, Lineage, LogKey
from quipu.model.bounds import OFFSET_MAX
from quipu.model.ids import NO_TIMESTAMP, Offset, TimestampMs

SKEW_MS: Final = 60_000  # clocks of writers may differ by so much
FIT_STEPS_MAX: Final = 10_000  # of the search for batches that fit one gap
SEQUENCE_COUNT: Final = 1 << 31  # a producer's sequences repeat after so many records
_REWRITTEN, _RECEIPTED, _DUPLICATE, _FITTED = range(4)  # which of several copies is taken


class FoundObject(NamedTuple):
    """An object in the store."""

    key: str
    size: int
    footer: ObjectFooter


class TieredOffsets(NamedTuple):
    """The offsets of a log that the remote tier has."""

    start: Offset
    end: Offset
    lineage: Lineage | None = None  # of a log that was on disks: its leader epochs


class OffsetGap(NamedTuple):
    """Offsets of a log that no object has."""

    log: LogKey
    start: Offset
    end: Offset
    max_timestamp: TimestampMs  # of the batch before it, or else of the one after it


class RestoredLog(NamedTuple):
    """The bounds of a log."""

    log_start: Offset
    diskless_start: Offset
    high_watermark: Offset


@dataclass(slots=True)
class PlacedCounts:
    """What became of the batches."""

    known: int = 0  # placed where a receipt or a rewritten object says
    without_receipt: int = 0  # placed where they fit, or at the end
    copies: int = 0  # of batches that are in use
    refused: int = 0  # a receipt says so
    expired: int = 0  # below the start of their log
    contradictions: int = 0  # receipts that do not agree with others: a bug, or foreign objects


class RebuildPlan(NamedTuple):
    """Offsets for the batches of each object, NO_OFFSET if not in use; and what follows of them."""

    offsets: list[list[Offset]]
    logs: dict[LogKey, RestoredLog]
    gaps: list[OffsetGap]
    counts: PlacedCounts


class _Placed(NamedTuple):
    """A batch that has offsets."""

    base: int
    rank: int
    object_index: int
    batch_index: int
    end: int


class _Unit(NamedTuple):
    """The batches of one log in an object without a receipt: a commit places them together."""

    object_index: int
    batch_indexes: tuple[int, ...]
    record_count: int
    created_ms: int
    lower: int  # after what its writer wrote before
    upper: int


class _Gap(NamedTuple):
    """Offsets that no batch has, and when such batches may have been written."""

    start: int
    end: int
    earliest_ms: int
    latest_ms: int

    def distance_ms(self, unit: _Unit) -> int:
        """How far a unit's time is from those of the batches around the gap."""
        return max(0, self.earliest_ms + SKEW_MS - unit.created_ms,
                   unit.created_ms - (self.latest_ms - SKEW_MS))


@dataclass(slots=True)
class _LogFacts:
    """What objects say of one log."""

    known: list[_Placed] = field(default_factory=list)
    loose: list[tuple[int, list[int]]] = field(default_factory=list)  # object, batches


def plan_rebuild(
    objects: Sequence[FoundObject], tiers: Mapping[LogKey, TieredOffsets] | None = None
) -> RebuildPlan:
    """Give offsets to the batches of all objects of a store."""
    tiers = tiers or {}
    receipts = {receipt.name: receipt.offsets
                for found in objects for receipt in found.footer.receipts}
    notes = merge_notes(note for found in objects for note in found.footer.notes)
    offsets = [[NO_OFFSET] * len(found.footer.batches) for found in objects]
    plan = RebuildPlan(offsets, {}, [], PlacedCounts())
    logs: dict[LogKey, _LogFacts] = defaultdict(_LogFacts)
    for log in (*notes, *tiers):
        logs[log]
    for number, found in enumerate(objects):
        _sort_batches(number, found.footer, receipts.get(found.footer.name), logs, plan.counts)
    for log, facts in sorted(logs.items()):
        _LogPlan(log, facts, objects, plan).place(notes.get(log), tiers.get(log))
    return plan


def _sort_batches(
    number: int, footer: ObjectFooter, receipt: tuple[int, ...] | None,
    logs: dict[LogKey, _LogFacts], counts: PlacedCounts,
) -> None:
    """Tell the batches of an object apart by what is known of their offsets."""
    if receipt is not None and len(receipt) != len(footer.batches):
        counts.contradictions += 1
        receipt = None
    for index, (place, base_offset, _) in enumerate(footer.batches):
        facts = logs[place.log]
        rank, base = _REWRITTEN, int(base_offset)
        if base < 0 and receipt is not None:
            rank, base = _RECEIPTED, receipt[index]
            duplicate = duplicate_of(base)
            if duplicate is not None:
                rank, base = _DUPLICATE, duplicate
            elif base < 0:
                counts.refused += 1
                continue
        if base >= 0:
            facts.known.append(_Placed(base, rank, number, index, base + place.record_count))
        elif facts.loose and facts.loose[-1][0] == number:
            facts.loose[-1][1].append(index)
        else:
            facts.loose.append((number, [index]))


class _LogPlan:
    """Places the batches of one log."""

    def __init__(
        self, log: LogKey, facts: _LogFacts, objects: Sequence[FoundObject], plan: RebuildPlan
    ) -> None:
        self._log = log
        self._facts = facts
        self._objects = objects
        self._plan = plan
        self._placed: list[_Placed] = []
        self._seen: dict[tuple[int, int, int, int], int] = {}  # a producer's batch: its base offset

    def place(self, note: LogNote | None, tier: TieredOffsets | None) -> None:
        self._place_known()
        low = note.log_start_offset if note is not None else Offset(0)
        first = max(low, tier.end) if tier is not None else low
        high = max(note.high_watermark if note is not None else 0, first,
                   self._placed[-1].end if self._placed else 0)
        queues = self._queues()
        if queues:
            for exactly in (True, False):
                self._fill_gaps(queues, first, high, exactly=exactly)
            high = self._append(queues, high)
        self._enter(low, Offset(high), tier)

    # -- what is known

    def _place_known(self) -> None:
        """Take one of all copies of a batch (diskless.B1)."""
        counts = self._plan.counts
        for each in sorted(self._facts.known):
            last = self._placed[-1] if self._placed else None
            if last is None or each.base >= last.end:
                self._take(each)
            elif (each.base, each.end) == (last.base, last.end):
                counts.copies += 1
            else:
                counts.contradictions += 1

    def _take(self, placed: _Placed) -> None:
        self._placed.append(placed)
        key = _producer_key(self._batch(placed.object_index, placed.batch_index).coordinates)
        if key is not None:
            self._seen[key] = placed.base

    def _batch(self, object_index: int, batch_index: int) -> FooterBatch:
        return self._objects[object_index].footer.batches[batch_index]

    # -- what has no receipt

    def _queues(self) -> dict[UUID, list[_Unit]]:
        """The batches without offsets that are no duplicates, by writer and in its order."""
        windows: dict[UUID, list[tuple[int, int, int]]] = defaultdict(list)
        writers = {self._objects[number].footer.name.writer for number, _ in self._facts.loose}
        for each in self._placed if writers else ():
            name = self._objects[each.object_index].footer.name
            if name.writer in writers and each.rank == _RECEIPTED:
                windows[name.writer].append((name.sequence, each.base, each.end))
        seen: set[tuple[int, int, int, int]] = set()
        queues: dict[UUID, list[_Unit]] = defaultdict(list)
        for number, indexes in sorted(self._facts.loose, key=self._order_of):
            footer = self._objects[number].footer
            kept = [index for index in indexes if self._is_new(footer.batches[index], seen)]
            if kept:
                before = windows[footer.name.writer]
                queues[footer.name.writer].append(_Unit(
                    number, tuple(kept),
                    sum(footer.batches[index].coordinates.record_count for index in kept),
                    footer.created_ms, *_window(footer.name, before)))
        for queue in queues.values():
            queue.sort(key=lambda unit: self._objects[unit.object_index].footer.name.sequence)
        return queues

    def _order_of(self, loose: tuple[int, list[int]]) -> tuple[int, ObjectName]:
        footer = self._objects[loose[0]].footer
        return footer.created_ms, footer.name

    def _is_new(self, batch: FooterBatch, seen: set[tuple[int, int, int, int]]) -> bool:
        """Whether a batch is no duplicate by its producer's sequences (diskless.B2)."""
        key = _producer_key(batch.coordinates)
        if key is None:
            return True
        base = self._seen.get(key)
        is_duplicate = key in seen or (
            base is not None and self._placed[-1].end - base < SEQUENCE_COUNT)
        seen.add(key)
        self._plan.counts.copies += is_duplicate
        return not is_duplicate

    def _fill_gaps(
        self, queues: dict[UUID, list[_Unit]], first: int, high: int, *, exactly: bool
    ) -> None:
        """Place batches in gaps, between what their writers wrote before and after them."""
        added: list[_Placed] = []
        misfits: dict[UUID, list[_Unit]] = defaultdict(list)
        before: _Placed | None = None
        cursor = first
        for each in (*self._placed, None):
            end = high if each is None else each.base
            if cursor < end:
                for writer, queue in queues.items():
                    while queue and queue[0].upper <= cursor:  # it fits nowhere
                        misfits[writer].append(queue.pop(0))
                gap = _Gap(cursor, end, *self._times(before, each))
                for unit in _fit(queues, gap) if exactly else _fit_some(queues, gap):
                    added += self._spread(unit, cursor)
                    cursor = added[-1].end
            if each is not None:
                cursor, before = max(cursor, each.end), each
        for writer, units in misfits.items():
            queues[writer][:0] = units
        for placed in added:
            self._take(placed)
        self._placed.sort()

    def _times(self, before: _Placed | None, after: _Placed | None) -> tuple[int, int]:
        """When an object between two others may have been written."""
        earliest, latest = -SKEW_MS, OFFSET_MAX
        if before is not None and before.rank == _RECEIPTED:  # a rewritten one is newer
            earliest = self._objects[before.object_index].footer.created_ms - SKEW_MS
        if after is not None:
            latest = self._objects[after.object_index].footer.created_ms + SKEW_MS
        return earliest, latest

    def _spread(self, unit: _Unit, base: int) -> list[_Placed]:
        """The batches of a unit from an offset on."""
        found = []
        for index in unit.batch_indexes:
            end = base + self._batch(unit.object_index, index).coordinates.record_count
            found.append(_Placed(base, _FITTED, unit.object_index, index, end))
            base = end
        return found

    def _append(self, queues: dict[UUID, list[_Unit]], high: int) -> int:
        """Place the batches that are left after the end of the log; returns its new end."""
        ordered = []
        for queue in queues.values():
            newest = 0
            for unit in queue:
                newest = max(newest, unit.created_ms)  # a clock that was set back changes no order
                name = self._objects[unit.object_index].footer.name
                ordered.append((newest, name.writer, name.sequence, unit))
        for *_, unit in sorted(ordered):
            for placed in self._spread(unit, high):
                self._take(placed)
                high = placed.end
        return high

    # -- the result

    def _enter(self, low: Offset, high: Offset, tier: TieredOffsets | None) -> None:
        """Enter the offsets that are in use, the bounds, and the gaps (diskless.B3)."""
        counts = self._plan.counts
        first = low if tier is None else max(low, tier.end)
        used = [each for each in self._placed if each.end > first]
        counts.expired += len(self._placed) - len(used)
        for each in used:
            self._plan.offsets[each.object_index][each.batch_index] = Offset(each.base)
        fitted = sum(each.rank == _FITTED for each in used)
        counts.without_receipt += fitted
        counts.known += len(used) - fitted
        if tier is None:  # what was before the first batch is gone
            first = max(low, Offset(used[0].base)) if used else high
        log_start = first if tier is None else max(low, tier.start)
        self._plan.logs[self._log] = RestoredLog(log_start, first, high)
        self._plan.gaps.extend(self._gaps(used, first, high))

    def _gaps(self, used: Sequence[_Placed], first: int, high: int) -> Iterator[OffsetGap]:
        cursor, newest = first, NO_TIMESTAMP
        for each in used:
            timestamp = self._batch(each.object_index, each.batch_index).coordinates.max_timestamp
            if each.base > cursor:
                yield OffsetGap(self._log, Offset(cursor), Offset(each.base),
                                timestamp if newest == NO_TIMESTAMP else newest)
            cursor, newest = each.end, timestamp
        if cursor < high:
            yield OffsetGap(self._log, Offset(cursor), Offset(high), newest)


def _producer_key(batch: BatchCoordinates) -> tuple[int, int, int, int] | None:
    """What a producer's batch has in common with its repetitions; None without a producer."""
    if batch.producer_id < 0:
        return None
    return batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.record_count


def _window(name: ObjectName, known: Sequence[tuple[int, int, int]]) -> tuple[int, int]:
    """Between which offsets an object's batches are, by those of its writer's other objects."""
    lower = max((end for sequence, _, end in known if sequence < name.sequence), default=0)
    upper = min((base for sequence, base, _ in known if sequence > name.sequence),
                default=OFFSET_MAX)
    return lower, upper


def _choices(
    queues: dict[UUID, list[_Unit]], heads: dict[UUID, int], gap: _Gap, cursor: int
) -> list[UUID]:
    """The writers whose next unit may begin at an offset in a gap; the likeliest comes last."""
    fronts = [(queue[heads[writer]], writer) for writer, queue in queues.items()
              if heads[writer] < len(queue)]
    fronts.sort(key=lambda front: (-gap.distance_ms(front[0]), -front[0].created_ms, front[1]))
    return [writer for unit, writer in fronts
            if unit.lower <= cursor and cursor + unit.record_count <= min(gap.end, unit.upper)
            and gap.earliest_ms <= unit.created_ms <= gap.latest_ms]


def _fit(queues: dict[UUID, list[_Unit]], gap: _Gap) -> list[_Unit]:
    """Units that fill a gap exactly, each writer's in order; they are taken from the queues.

    Of several ways, the one that agrees best with the times of writing is found first.
    """
    heads = dict.fromkeys(queues, 0)
    taken: list[UUID] = []
    cursor = gap.start
    pending = [_choices(queues, heads, gap, cursor)]
    for _ in range(FIT_STEPS_MAX):
        if cursor == gap.end:
            return [queues[writer].pop(0) for writer in taken]
        if pending[-1]:
            writer = pending[-1].pop()
            taken.append(writer)
            cursor += queues[writer][heads[writer]].record_count
            heads[writer] += 1
            pending.append(_choices(queues, heads, gap, cursor))
        elif taken:
            pending.pop()
            writer = taken.pop()
            heads[writer] -= 1
            cursor -= queues[writer][heads[writer]].record_count
        else:
            return []
    return []


def _fit_some(queues: dict[UUID, list[_Unit]], gap: _Gap) -> list[_Unit]:
    """Units that belong into a gap by order and time, though others of it are lost."""
    found: list[_Unit] = []
    cursor, heads = gap.start, dict.fromkeys(queues, 0)
    while choices := _choices(queues, heads, gap, cursor):
        found.append(queues[choices[-1]].pop(0))
        cursor += found[-1].record_count
    return found

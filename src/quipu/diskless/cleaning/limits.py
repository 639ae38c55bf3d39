"""How often the passes of the cleaner run, how much each may do, and how late it deletes.

Invariant
    diskless.cleaning.L1  an object is deleted no earlier than twice the time for which a reader
                          uses the coordinates that it was told: so no reader, also one whose clock
                          differs by that time, looks for an object that is gone
"""

from dataclasses import dataclass
from typing import Final

from quipu.model.errors import ErrorKind, QuipuError
from quipu.runtime.objects.store import GET_SIZE_MAX, PUT_SIZE_MAX

_MINUTE_MS: Final = 60_000
_DAY_MS: Final = 24 * 60 * _MINUTE_MS
_MIB: Final = 1 << 20
READER_SHARE: Final = 2  # diskless.cleaning.L1
FOOTER_ROOM: Final = 16 * _MIB  # of the largest object, for the index behind its batches


class BadCleaningLimits(QuipuError):
    """Settings that contradict each other: correct them."""

    kind = ErrorKind.INVALID


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningLimits:
    """The settings of the cleaner, and the bounds of one pass."""

    object_grace_ms: int = 10 * _MINUTE_MS  # diskless.object.grace.ms
    coordinates_ms: int = 5 * _MINUTE_MS  # for which readers use what they were told
    cleaner_interval_ms: int = 2 * _MINUTE_MS  # diskless.cleaner.interval.ms
    retention_interval_ms: int = _MINUTE_MS  # diskless.retention.interval.ms
    producer_expiry_ms: int = _DAY_MS  # producer.id.expiration.ms

    orphan_grace_ms: int = _DAY_MS  # diskless.orphan.grace.ms
    give_up_ms: int = 10 * _MINUTE_MS  # after which a writer commits an object no more

    is_rewriting: bool = True  # diskless.rewrite.enable
    rewrite_age_ms: int = 60 * _MINUTE_MS  # diskless.rewrite.age.ms: younger objects are left
    rewrite_small_bytes: int = _MIB  # diskless.rewrite.small.bytes
    rewrite_live_share: float = 0.25  # diskless.rewrite.live.percent, as a share
    rewrite_object_bytes: int = 32 * _MIB  # diskless.rewrite.object.bytes: of a new object
    rewrite_pass_bytes: int = 256 * _MIB  # diskless.rewrite.pass.bytes: read and written
    rewrite_objects_min: int = 8  # small objects that are worth one new object

    deletions_max: int = 20_000  # objects of one pass
    orphan_pages_max: int = 1000  # of the store's listing in one pass; the next one goes on

    def check(self) -> None:
        """Raise `BadCleaningLimits` unless the numbers fit each other."""
        if self.object_grace_ms < READER_SHARE * self.coordinates_ms:  # diskless.cleaning.L1
            raise BadCleaningLimits(
                f"diskless.object.grace.ms is {self.object_grace_ms}, but readers use coordinates "
                f"for {self.coordinates_ms} ms: set it to {READER_SHARE * self.coordinates_ms} or "
                "more")
        if self.orphan_grace_ms <= self.give_up_ms:
            raise BadCleaningLimits(
                f"diskless.orphan.grace.ms is {self.orphan_grace_ms}, but a writer may commit an "
                f"object {self.give_up_ms} ms after it was stored: set it to more")
        if not 0 <= self.rewrite_live_share < 1:
            raise BadCleaningLimits("diskless.rewrite.live.percent must be 0 to 99")
        if self.rewrite_object_bytes > min(PUT_SIZE_MAX, GET_SIZE_MAX) - FOOTER_ROOM:
            raise BadCleaningLimits("diskless.rewrite.object.bytes is more than one put can have")
        if self.rewrite_small_bytes > self.rewrite_object_bytes // self.rewrite_objects_min:
            raise BadCleaningLimits(
                f"diskless.rewrite.small.bytes is {self.rewrite_small_bytes}, but "
                f"{self.rewrite_objects_min} small objects must fit in "
                f"diskless.rewrite.object.bytes = {self.rewrite_object_bytes}")

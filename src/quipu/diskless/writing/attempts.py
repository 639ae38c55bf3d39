"""Stores an object and commits it: repeats what may be repeated, for a bounded time.

    is_sole = await put_object(...)     True: nothing else can read the buffers any more
    outcomes = await commit_object(...)

Invariants
    diskless.W5  an object is stored under its own key with `if_absent`; if the key is taken, the
                 object there counts as this one only if it has its size: keys are never reused
    diskless.W6  a commit is repeated with the same object until its outcome is known, or for
                 `commit_ms_max`; then its batches get an error that says that it is unknown

Not here: in which order objects are committed (writer.py).
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from quipu.diskless.control_plane.interface import BatchOutcome, ControlPlane
from quipu.diskless.errors import CommitOutcomeUnknown, ControlPlaneClosed, ControlPlaneUnavailable
from quipu.diskless.values import NewObject
from quipu.diskless.writing.limits import WriterLimits
from quipu.diskless.writing.stats import WriterStats
from quipu.model.errors import Code, ErrorKind, RequestError
from quipu.runtime.clock import Clock
from quipu.runtime.objects.errors import (
    ObjectNotFound,
    ObjectStoreError,
    PreconditionFailed,
    StoreUnavailable,
)
from quipu.runtime.objects.store import Buffer, ObjectStore
from quipu.runtime.rng import Rng

BACKOFF_SECONDS: Final = 0.02  # before the second attempt; it doubles
BACKOFF_SECONDS_MAX: Final = 1.0


class Backoff:
    """The pauses between attempts, and when there is no time left for another."""

    def __init__(self, clock: Clock, rng: Rng, ms_max: int) -> None:
        self._clock = clock
        self._rng = rng
        self._end = clock.monotonic() + ms_max / 1000
        self._seconds = BACKOFF_SECONDS

    async def pause(self) -> bool:
        """Wait a little, longer each time; False at once if the time is over."""
        seconds = self._seconds * (0.5 + self._rng.random() / 2)
        if self._clock.monotonic() + seconds >= self._end:
            return False
        self._seconds = min(2 * self._seconds, BACKOFF_SECONDS_MAX)
        await asyncio.sleep(seconds)
        return True


class NotStored(RequestError):
    """The object could not be stored; nothing refers to it."""

    kind = ErrorKind.RETRY
    code = Code.KAFKA_STORAGE_ERROR


class NotCommitted(RequestError):
    """The control plane could not be asked; the object is stored, and nothing refers to it."""

    kind = ErrorKind.RETRY
    code = Code.KAFKA_STORAGE_ERROR


class CommitUnknown(RequestError):
    """Whether the object was committed is unknown."""

    kind = ErrorKind.RETRY
    code = Code.REQUEST_TIMED_OUT


class Attempts:
    """Puts and commits of one writer."""

    def __init__(
        self, store: ObjectStore, plane: ControlPlane, clock: Clock, rng: Rng, *,
        limits: WriterLimits, stats: WriterStats,
    ) -> None:
        self._store = store
        self._plane = plane
        self._clock = clock
        self._rng = rng
        self._limits = limits
        self._stats = stats

    async def put(self, key: str, buffers: Sequence[Buffer], size: int) -> bool:
        """Store an object; raises `NotStored`.

        True if one attempt was enough: after another one, the store may still read the buffers.
        """
        backoff = Backoff(self._clock, self._rng, self._limits.upload_ms_max)
        is_sole = True
        while True:
            self._stats.puts += 1
            try:
                async with asyncio.timeout(self._limits.attempt_ms_max / 1000):
                    await self._put_once(key, buffers, size)
            except (StoreUnavailable, TimeoutError) as error:
                failure: Exception = error
            except ObjectStoreError as error:  # it would fail again
                raise NotStored(f"{key}: cannot be stored: {error}") from error
            else:
                self._stats.put_bytes += size
                return is_sole
            is_sole = False
            if not await backoff.pause():
                raise NotStored(f"{key}: cannot be stored: {failure!r}") from failure
            self._stats.put_retries += 1

    async def _put_once(self, key: str, buffers: Sequence[Buffer], size: int) -> None:
        try:
            await self._store.put(key, buffers, if_absent=True)
        except PreconditionFailed:  # an earlier attempt has stored it (diskless.W5)
            try:
                found = await self._store.head(key)
            except ObjectNotFound as error:
                raise StoreUnavailable(f"{key}: is there, and is not") from error
            if found.size != size:
                raise NotStored(f"{key}: another object, of {found.size} bytes and not {size}, "
                                "has this key") from None

    async def commit(self, new: NewObject) -> Sequence[BatchOutcome]:
        """Commit an object; raises `NotCommitted` or `CommitUnknown` (diskless.W6)."""
        backoff = Backoff(self._clock, self._rng, self._limits.commit_ms_max)
        is_unknown = False
        while True:
            try:
                async with asyncio.timeout(self._limits.attempt_ms_max / 1000):
                    outcomes = await self._plane.commit(new, self._clock.now_ms())
            except (ControlPlaneUnavailable, TimeoutError) as error:
                failure: Exception = error
                is_unknown |= isinstance(error, CommitOutcomeUnknown | TimeoutError)
            else:
                assert len(outcomes) == len(new.batches), (new.key, len(outcomes))
                return outcomes
            if isinstance(failure, ControlPlaneClosed) or not await backoff.pause():
                kind = CommitUnknown if is_unknown else NotCommitted
                raise kind(f"{new.key}: cannot be committed: {failure!r}") from failure
            self._stats.commit_retries += 1

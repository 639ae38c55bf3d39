"""Stores and control planes that fail as real ones do: refuse, are slow, or lose the answer."""

import asyncio
from collections import Counter, deque
from collections.abc import Sequence
from enum import Enum
from typing import Any

from quipu.diskless.control_plane.interface import BatchOutcome, ControlPlane
from quipu.diskless.errors import CommitOutcomeUnknown, ControlPlaneUnavailable
from quipu.diskless.values import NewObject
from quipu.runtime.objects.errors import ObjectNotFound, StoreDenied, StoreUnavailable
from quipu.runtime.objects.store import Buffer, ByteRange, ObjectInfo, ObjectStore


class Fault(Enum):
    """What happens to one call."""

    NONE = "none"
    REFUSE = "refuse"  # nothing is done
    DENY = "deny"  # nothing is done, and never will be
    LOSE = "lose"  # it is done, and the answer is lost
    STALL = "stall"  # nothing is done, and there is no answer
    MISS = "miss"  # the object is said not to be there
    FLIP = "flip"  # a bit of the bytes that are read is another


class Faults:
    """The faults of the next calls, one each; afterwards `then`, for ever."""

    def __init__(self) -> None:
        self._next: deque[Fault] = deque()
        self.then = Fault.NONE

    def plan(self, *faults: Fault, then: Fault = Fault.NONE) -> None:
        self._next.extend(faults)
        self.then = then

    def take(self) -> Fault:
        return self._next.popleft() if self._next else self.then


class FaultyStore:
    """An `ObjectStore` in front of another one."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.put_faults, self.get_faults = Faults(), Faults()
        self.put_seconds: dict[int, float] = {}  # of the n-th put, from 0 on
        self.get_seconds = 0.0
        self.calls: Counter[str] = Counter()
        self.putting = self.putting_most = 0
        self.getting = self.getting_most = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def put(self, key: str, data: Sequence[Buffer], **conditions: Any) -> ObjectInfo:
        number, fault = self.calls["put"], self.put_faults.take()
        self.calls["put"] += 1
        self.putting += 1
        self.putting_most = max(self.putting_most, self.putting)
        try:
            await asyncio.sleep(self.put_seconds.get(number, 0.0))
            match fault:
                case Fault.REFUSE:
                    raise StoreUnavailable(key)
                case Fault.DENY:
                    raise StoreDenied(key)
                case Fault.STALL:
                    await asyncio.sleep(1e6)
            info = await self._store.put(key, data, **conditions)
            if fault is Fault.LOSE:
                raise StoreUnavailable(key)
            return info
        finally:
            self.putting -= 1

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> Sequence[Buffer]:
        fault = self.get_faults.take()
        self.calls["get"] += 1
        self.getting += 1
        self.getting_most = max(self.getting_most, self.getting)
        try:
            await asyncio.sleep(self.get_seconds)
            match fault:
                case Fault.REFUSE:
                    raise StoreUnavailable(key)
                case Fault.MISS:
                    raise ObjectNotFound(key)
                case Fault.STALL:
                    await asyncio.sleep(1e6)
            found = await self._store.get_ranges(key, ranges)
            return [_flipped(each) for each in found] if fault is Fault.FLIP else found
        finally:
            self.getting -= 1


def _flipped(data: Buffer) -> bytes:
    damaged = bytearray(data)
    damaged[-1] ^= 1
    return bytes(damaged)


class FaultyPlane:
    """A `ControlPlane` in front of another one, whose commits fail."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self.faults, self.find_faults = Faults(), Faults()
        self.commits: list[str] = []  # keys, in the order of the calls
        self.calls: Counter[str] = Counter()
        self.commit_seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plane, name)

    async def commit(self, new: NewObject, now_ms: int) -> Sequence[BatchOutcome]:
        self.commits.append(new.key)
        fault = self.faults.take()
        await asyncio.sleep(self.commit_seconds)
        match fault:
            case Fault.REFUSE:
                raise ControlPlaneUnavailable("refused")
            case Fault.STALL:
                await asyncio.sleep(1e6)
        outcomes = await self._plane.commit(new, now_ms)
        if fault is Fault.LOSE:
            raise CommitOutcomeUnknown("lost")
        return outcomes

    async def find(self, *args: Any, **kwargs: Any) -> Any:
        self.calls["find"] += 1
        if self.find_faults.take() is Fault.REFUSE:
            raise ControlPlaneUnavailable("refused")
        return await self._plane.find(*args, **kwargs)

"""An object store in a simulated world: simulates the stores in `runtime.objects`.

    StoreFaults   the faults of the store: delays, refused requests, lost responses
    SimBucket     the objects, which all machines share; no crash of a machine loses them
    SimStore      the `ObjectStore` of one process

A request is sent over the network to the host STORE_HOST, unless that link is cut, and is carried
out there atomically, even if the calling process has ended meanwhile.

Invariants
    sim.O1  a request is carried out once or not at all, whatever its caller gets
    sim.O2  a call returns or raises within TIMEOUT_SECONDS; after `StoreUnavailable` the request
            may have been carried out
"""

import asyncio
from collections.abc import AsyncIterable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from quipu.runtime.objects.errors import ObjectStoreError, StoreUnavailable
from quipu.runtime.objects.memory import MemoryObjects, joined
from quipu.runtime.objects.store import (
    LIST_MAX,
    Buffer,
    ByteRange,
    ObjectInfo,
    ObjectPage,
)
from quipu.sim.dice import Dice

if TYPE_CHECKING:
    from quipu.sim.twins.net import Door, SimNet

STORE_HOST: Final = "objects"
TIMEOUT_SECONDS: Final = 10.0
HEAD_SIZE: Final = 300  # bytes of a request or response without the object

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFaults:
    """The faults of a store; probabilities are per request."""

    seconds_min: float = 0.005  # usual duration of a request
    seconds_max: float = 0.05
    slow: float = 0.0  # probability of an additional delay ...
    slow_seconds_max: float = 5.0  # ... of up to this many seconds
    refuse: float = 0.0  # probability of a 503, without effect
    lose_answer: float = 0.0  # probability that a request is carried out and its response lost


NO_FAULTS: Final = StoreFaults()


class SimBucket:
    """The objects of the store, and its faults."""

    def __init__(self, net: "SimNet", dice: Dice, now_ms: Callable[[], int]) -> None:
        self.net = net
        self.dice = dice
        self.faults = NO_FAULTS
        self.objects = MemoryObjects(now_ms)
        self.on_delete: Callable[[Sequence[str]], None] = lambda _keys: None  # called just before

    def store(self, door: "Door") -> "SimStore":
        """The `ObjectStore` of the process that `door` belongs to."""
        return SimStore(self, door)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects."""
        self.on_delete(keys)
        self.objects.delete(keys)

    def seconds(self) -> float:
        """A random duration for the next request."""
        faults, dice = self.faults, self.dice
        seconds = dice.between(faults.seconds_min, faults.seconds_max)
        if faults.slow and dice.flip(faults.slow):
            seconds += dice.between(0, faults.slow_seconds_max)
        return seconds

    def refuses(self) -> bool:
        return bool(self.faults.refuse) and self.dice.flip(self.faults.refuse)

    def loses_answer(self) -> bool:
        return bool(self.faults.lose_answer) and self.dice.flip(self.faults.lose_answer)


class SimStore:
    """An `ObjectStore` whose requests are sent over simulated links."""

    def __init__(self, bucket: SimBucket, door: "Door") -> None:
        self._bucket = bucket
        self._door = door

    async def put(
        self, key: str, data: Sequence[Buffer], *,
        if_absent: bool = False, if_match: str | None = None,
    ) -> ObjectInfo:
        kept = [bytes(buffer) for buffer in data]
        return await self._ask(f"put {key}", lambda objects: objects.put(
            key, kept, if_absent=if_absent, if_match=if_match), sum(map(len, kept)))

    async def put_parts(self, key: str, parts: AsyncIterable[Buffer]) -> ObjectInfo:
        data = await joined(key, parts)
        self._bucket.net.notify("put", self._door.host)
        return await self._ask(
            f"put {key}", lambda objects: objects.put_unchecked(key, data), len(data))

    async def get(self, key: str) -> bytes:
        return await self._ask(f"get {key}", lambda objects: objects.get(key))

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[bytes]:
        return await self._ask(f"get {key}", lambda objects: objects.get_ranges(key, ranges))

    async def head(self, key: str) -> ObjectInfo:
        return await self._ask(f"head {key}", lambda objects: objects.head(key))

    async def list(
        self, prefix: str = "", *, after: str | None = None, limit: int = LIST_MAX
    ) -> ObjectPage:
        return await self._ask(
            f"list {prefix}", lambda objects: objects.list(prefix, after=after, limit=limit))

    async def delete(self, keys: Sequence[str]) -> None:
        wanted = list(keys)
        await self._ask(f"delete {len(wanted)}", lambda _: self._bucket.delete(wanted))

    async def close(self) -> None:
        """Do nothing: no resources are held."""

    async def _ask(self, what: str, work: Callable[[MemoryObjects], T], size: int = 0) -> T:
        """Send a request that does `work` at the store; return its result (sim.O2)."""
        net, host = self._bucket.net, self._door.host
        answered: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        net.trace.add(net.loop.now, host, "> objects", what)
        net.link(host, STORE_HOST).stream(
            HEAD_SIZE + size, lambda: self._arrived(what, work, answered), None)
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                return await answered
        except TimeoutError:
            raise StoreUnavailable(
                f"{what}: no response within {TIMEOUT_SECONDS:g} s; it may have been done"
            ) from None

    def _arrived(
        self, what: str, work: Callable[[MemoryObjects], T], answered: "asyncio.Future[T]"
    ) -> None:
        """Handle a request at the store; its faults are decided when it arrives."""
        bucket, net = self._bucket, self._bucket.net
        seconds, refused, is_lost = bucket.seconds(), bucket.refuses(), bucket.loses_answer()

        def serve() -> None:
            """Carry out the request, once and atomically (sim.O1)."""
            outcome: T | ObjectStoreError
            try:
                if refused:
                    raise StoreUnavailable(f"{what}: 503 slow down")
                outcome = work(bucket.objects)
            except ObjectStoreError as error:
                outcome = error
            net.trace.add(net.loop.now, STORE_HOST, "lost" if is_lost else "served", what)
            if not is_lost:
                self._answer(outcome, answered)

        net.at(net.loop.now + seconds, serve, None)

    def _answer(self, outcome: T | ObjectStoreError, answered: "asyncio.Future[T]") -> None:
        def deliver() -> None:
            if answered.done():
                return
            if isinstance(outcome, ObjectStoreError):
                answered.set_exception(outcome)
            else:
                answered.set_result(outcome)

        size = len(outcome) if isinstance(outcome, bytes) else 0
        self._bucket.net.link(STORE_HOST, self._door.host).stream(
            HEAD_SIZE + size, deliver, self._door.process.context)

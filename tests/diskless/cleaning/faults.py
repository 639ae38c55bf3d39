"""A store and a control plane that a story can cut off between any two steps."""

from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any

from quipu.diskless.control_plane.interface import ControlPlane
from quipu.diskless.errors import CommitOutcomeUnknown, ControlPlaneUnavailable
from quipu.runtime.objects.errors import StoreUnavailable
from quipu.runtime.objects.store import (
    LIST_MAX,
    Buffer,
    ByteRange,
    ObjectInfo,
    ObjectPage,
    ObjectStore,
)


class Crash(BaseException):
    """The process ends here: no handler of errors sees it."""


class Faults:
    """Decides what happens to each step: nothing, an error before or after it, or a crash."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.error_share = 0.0
        self.crash_in: int | None = None  # after so many steps

    def strike(self) -> bool:
        """Whether this step fails; raises `Crash` if the process ends here."""
        if self.crash_in is not None:
            if self.crash_in <= 0:
                raise Crash
            self.crash_in -= 1
        return self._random.random() < self.error_share

    async def step(
        self, work: Callable[[], Awaitable[Any]], before: Exception, after: Exception
    ) -> Any:
        if self.strike():
            raise before
        result = await work()
        if self.strike():
            raise after
        return result


class FaultyStore:
    """A store whose steps may fail, and whose objects have the times of the story's clock."""

    def __init__(self, store: ObjectStore, faults: Faults, now_ms: Callable[[], int]) -> None:
        self.real = store
        self._faults = faults
        self._now_ms = now_ms
        self.times: dict[str, int] = {}
        self.gets: dict[str, int] = {}  # bytes read

    async def _step(self, work: Callable[[], Awaitable[Any]]) -> Any:
        return await self._faults.step(
            work, StoreUnavailable("refused"), StoreUnavailable("no answer"))

    async def put(
        self, key: str, data: Sequence[Buffer], *, if_absent: bool = False,
        if_match: str | None = None,
    ) -> ObjectInfo:
        async def work() -> ObjectInfo:
            info = await self.real.put(key, data, if_absent=if_absent, if_match=if_match)
            self.times[key] = self._now_ms()
            return info
        found: ObjectInfo = await self._step(work)
        return found

    async def put_parts(self, key: str, parts: object) -> ObjectInfo:
        raise AssertionError("not used")

    async def get(self, key: str) -> bytes:
        found: bytes = await self._step(lambda: self.real.get(key))
        return found

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> Sequence[Buffer]:
        self.gets[key] = self.gets.get(key, 0) + sum(end - start for start, end in ranges)
        found: Sequence[Buffer] = await self._step(lambda: self.real.get_ranges(key, ranges))
        return found

    async def head(self, key: str) -> ObjectInfo:
        found: ObjectInfo = await self._step(lambda: self.real.head(key))
        return found

    async def list(
        self, prefix: str = "", *, after: str | None = None, limit: int = LIST_MAX
    ) -> ObjectPage:
        async def work() -> ObjectPage:
            page = await self.real.list(prefix, after=after, limit=limit)
            return page._replace(objects=tuple(
                info._replace(modified_ms=self.times.get(info.key, info.modified_ms))
                for info in page.objects))
        found: ObjectPage = await self._step(work)
        return found

    async def delete(self, keys: Sequence[str]) -> None:
        await self._step(lambda: self.real.delete(keys))

    async def close(self) -> None:
        await self.real.close()


class FaultyPlane:
    """A control plane whose steps may fail."""

    def __init__(self, plane: ControlPlane, faults: Faults) -> None:
        self.real = plane
        self._faults = faults

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        operation = getattr(self.real, name)

        async def call(*args: object, **kwargs: object) -> Any:
            return await self._faults.step(
                lambda: operation(*args, **kwargs),
                ControlPlaneUnavailable("refused"), CommitOutcomeUnknown("no answer"))

        return call

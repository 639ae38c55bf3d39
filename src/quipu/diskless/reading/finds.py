"""`RunFinds`: asks the control plane where batches are; questions of one moment are one call."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from quipu.diskless.control_plane.interface import ControlPlane, FindRequest, FoundRuns
from quipu.diskless.reading.coordinates import Coordinates
from quipu.diskless.reading.stats import ReaderStats
from quipu.diskless.values import LogBounds, LogKey
from quipu.model.errors import Code, ErrorKind, QuipuError, RequestError
from quipu.model.ids import Offset
from quipu.runtime.spawn import spawn

REQUESTS_MAX: Final = 500  # in one call
_Asked = tuple[FindRequest, asyncio.Future[FoundRuns]]


class RunFinds:
    """Questions of one reader; the answers go to its coordinates."""

    def __init__(
        self, plane: ControlPlane, coordinates: Coordinates, stats: ReaderStats, *,
        monotonic: Callable[[], float], learn_bounds: Callable[[LogKey, LogBounds], None],
    ) -> None:
        self._plane = plane
        self._coordinates = coordinates
        self._stats = stats
        self._monotonic = monotonic
        self._learn_bounds = learn_bounds
        self._asked: list[_Asked] = []

    async def find(self, log: LogKey, offset: Offset, max_bytes: int) -> FoundRuns:
        """The runs from an offset on; raises if there is no such log, or no control plane."""
        answer: asyncio.Future[FoundRuns] = asyncio.get_running_loop().create_future()
        if not self._asked:
            spawn(self._ask_all(), "find batches")  # it runs after others have asked as well
        self._asked.append((FindRequest(log, offset, max_bytes), answer))
        found = await answer
        if found.bounds is None:
            raise RequestError(f"{log}: the control plane does not know this partition",
                               code=Code.UNKNOWN_TOPIC_OR_PARTITION, kind=ErrorKind.REFRESH)
        return found

    async def _ask_all(self) -> None:
        asked, self._asked = self._asked, []
        for start in range(0, len(asked), REQUESTS_MAX):
            await self._ask(asked[start : start + REQUESTS_MAX])

    async def _ask(self, asked: Sequence[_Asked]) -> None:
        now = self._monotonic()  # what is found is at least so new
        self._stats.finds += 1
        try:
            found = await self._plane.find([request for request, _ in asked])
        except BaseException as error:
            failure = error if isinstance(error, QuipuError) else RequestError(
                f"the control plane cannot be asked: {error!r}",
                code=Code.KAFKA_STORAGE_ERROR, kind=ErrorKind.RETRY)
            for _, answer in asked:
                if not answer.done():
                    answer.set_exception(failure)
            if failure is not error:
                raise
            return
        for (request, answer), each in zip(asked, found, strict=True):
            if each.bounds is not None:
                self._learn_bounds(request.log, each.bounds)
                self._coordinates.learn_runs(request.log, each.runs, now)
            if not answer.done():
                answer.set_result(each)

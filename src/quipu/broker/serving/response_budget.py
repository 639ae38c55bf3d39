"""Bounds the memory of one response, and of all responses of a node together.

Every decoded request has a `ResponseBudget`.  Its handler builds long arrays with `array`, which
encodes elements as they are appended and counts their bytes, and calls `pause` at every step of a
loop, so that other requests can use the event loop meanwhile.

Invariants
    broker.serving.A1  a response of more than `max.response.bytes` is refused, before more memory
                       is used for it
    broker.serving.A2  responses that are being built or sent hold `queued.max.response.bytes` at
                       most, all together; if one more byte would exceed that, the connection that
                       has been receiving its response for longest is closed; if there is none that
                       is slow enough, the new response is refused
    broker.serving.A3  nothing more is done for a connection that is closed

Not here: whose turn it is (runtime/turns.py), when a response has been sent (server.py).
"""

from collections.abc import Callable
from typing import Final, TypeVar

from quipu.broker.observing.stats import Stats
from quipu.model.errors import Code, ErrorKind, RequestError
from quipu.runtime.turns import Turns
from quipu.wire.encoded import EncodedArray
from quipu.wire.schema import Response, Struct

S = TypeVar("S", bound=Struct)

LARGE_RESPONSE_SIZE: Final = 4 * 1024  # smaller responses are not counted
STALLED_SECONDS: Final = 1.0  # a connection that receives for less is never closed to make room


class ResponseTooLarge(RequestError):
    """The response would be larger than max.response.bytes."""

    code = Code.INVALID_REQUEST


class NoRoomForResponse(RequestError):
    """Other responses use all of queued.max.response.bytes; the client should ask again."""

    code = Code.REQUEST_TIMED_OUT
    kind = ErrorKind.RETRY


class ClientGone(Exception):
    """The connection that the response is for was closed."""


class ResponseBudgets:
    """The memory that a node has for responses."""

    def __init__(
        self, turns: Turns, monotonic: Callable[[], float], stats: Stats, *,
        size_max: int, total_max: int,
    ) -> None:
        self.turns = turns
        self.stats = stats
        self.size_max = size_max
        self.total = 0
        self._monotonic = monotonic
        self._total_max = total_max
        self._leaving: dict[ResponseBudget, float] = {}  # being sent, the oldest first

    def leaving(self, budget: "ResponseBudget") -> None:
        """Note that a response is complete, and is being sent."""
        self._leaving[budget] = self._monotonic()
        if self.is_full:
            self._drop_stalled()

    def left(self, budget: "ResponseBudget") -> None:
        self._leaving.pop(budget, None)

    def make_room(self) -> None:
        """Close connections that receive too slowly; raise if that does not free enough."""
        # broker.serving.A2
        self._drop_stalled()
        if self.is_full:
            self.stats.responses_refused += 1
            raise NoRoomForResponse(
                "other responses that have not been received yet use all of the memory for "
                "responses (queued.max.response.bytes); ask again later")

    def _drop_stalled(self) -> None:
        now = self._monotonic()
        for budget, since in list(self._leaving.items()):
            if not self.is_full or now - since < STALLED_SECONDS:
                break
            self.stats.responses_dropped += 1
            budget.give_up()

    @property
    def is_full(self) -> bool:
        return self.total > self._total_max


class ResponseBudget:
    """The memory of one response: how much it may use, and how much it uses."""

    __slots__ = ("_budgets", "_close", "_is_closed", "_response", "_version", "size")

    def __init__(
        self, budgets: ResponseBudgets, response: type[Response], version: int, *,
        is_closed: Callable[[], bool] = lambda: False, close: Callable[[], None] = lambda: None,
    ) -> None:
        self._budgets = budgets
        self._response = response
        self._version = version
        self._is_closed = is_closed
        self._close = close
        self.size = 0  # bytes that the response holds

    def array(self, of: type[S]) -> list[S]:
        """An array of the response, whose elements are encoded and counted when appended.

        Only append to it.
        """
        return self.encoded_array(of).as_list()

    def encoded_array(self, of: type[S]) -> EncodedArray[S]:
        """As `array`, as the type that it really is."""
        return self._response.encoded_array(of, self._version, self)

    def spend(self, size: int) -> None:
        """Count `size` more bytes of the response (broker.serving.A1, broker.serving.A2)."""
        budgets = self._budgets
        self.size += size
        budgets.total += size
        if self.size > budgets.size_max and size > 0:
            budgets.stats.responses_refused += 1
            raise ResponseTooLarge(
                f"the response would exceed {budgets.size_max} bytes (max.response.bytes); "
                "ask for less in one request")
        if budgets.is_full and size > 0:
            budgets.make_room()

    async def pause(self) -> None:
        """Let other requests run, if this turn has lasted long enough (broker.serving.A3)."""
        await self._budgets.turns.pause()
        if self._is_closed():
            raise ClientGone

    def is_due(self) -> bool:
        """Whether this turn has lasted long enough for a `pause`."""
        return self._budgets.turns.is_over()

    def leaving(self, size: int) -> None:
        """Note that the response is complete, has `size` bytes, and is being sent."""
        self._budgets.total += size - self.size
        self.size = size
        self._budgets.leaving(self)

    def release(self) -> None:
        """Note that the response holds no memory any more."""
        self._budgets.left(self)
        self._budgets.total -= self.size
        self.size = 0

    def give_up(self) -> None:
        """Close the connection instead of waiting until the response is sent."""
        self._close()
        self.release()

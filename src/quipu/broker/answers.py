"""Answers that may become large: how big one may be, and how much memory all of them may take.

Every request that is decoded has an `Answer`.  Its handler builds long arrays with `array`, which
encodes elements as they come and counts their bytes, and calls `pause` at every step of a loop, so
that others have the loop meanwhile.

Invariants
    A1  an answer of more than `max.response.bytes` is refused, before more memory is taken for it
    A2  answers that are being built or have not left yet hold `queued.max.response.bytes` at most,
        all together; when one more byte would not fit, the connection that has been taking its
        answer for longest is closed, and without such a one the new answer is refused
    A3  nothing more is done for a connection that is gone

Not here: whose turn it is (runtime/turns.py), when an answer has left (server.py).
"""

from collections.abc import Callable
from typing import Final, TypeVar

from quipu.broker.stats import Stats
from quipu.model.errors import Code, Kind, RequestError
from quipu.runtime.turns import Turns
from quipu.wire.encoded import EncodedArray
from quipu.wire.schema import Response, Struct

S = TypeVar("S", bound=Struct)

LARGE_ANSWER_SIZE: Final = 4 * 1024  # an answer below this is sent and forgotten
STALLED_SECONDS: Final = 1.0  # a younger answer is never given up to make room


class AnswerTooLarge(RequestError):
    """What was asked for is more than one answer may hold."""

    code = Code.INVALID_REQUEST


class NoRoomForAnswer(RequestError):
    """Other answers take all of the memory that there is for them; ask again."""

    code = Code.REQUEST_TIMED_OUT
    kind = Kind.RETRY


class AskerGone(Exception):
    """The connection that the answer is for was closed."""


class Answers:
    """The memory that a node has for answers."""

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
        self._leaving: dict[Answer, float] = {}  # large ones that have not left yet, oldest first

    def leaving(self, answer: "Answer") -> None:
        """`answer` is complete, and is being sent."""
        self._leaving[answer] = self._monotonic()
        if self.is_full:
            self._drop_stalled()

    def left(self, answer: "Answer") -> None:
        self._leaving.pop(answer, None)

    def make_room(self) -> None:
        """Close who does not take its answer, until the others fit; raise if they do not (A2)."""
        self._drop_stalled()
        if self.is_full:
            self.stats.answers_refused += 1
            raise NoRoomForAnswer(
                "other answers that have not been taken yet use all of the memory for answers "
                "(queued.max.response.bytes); ask again later")

    def _drop_stalled(self) -> None:
        now = self._monotonic()
        for answer, since in list(self._leaving.items()):
            if not self.is_full or now - since < STALLED_SECONDS:
                break
            self.stats.answers_dropped += 1
            answer.give_up()

    @property
    def is_full(self) -> bool:
        return self.total > self._total_max


class Answer:
    """One answer: what it may cost, and what it has cost so far."""

    __slots__ = ("_answers", "_close", "_is_closed", "_response", "_version", "size")

    def __init__(
        self, answers: Answers, response: type[Response], version: int, *,
        is_closed: Callable[[], bool] = lambda: False, close: Callable[[], None] = lambda: None,
    ) -> None:
        self._answers = answers
        self._response = response
        self._version = version
        self._is_closed = is_closed
        self._close = close
        self.size = 0  # bytes that are held for it

    def array(self, of: type[S]) -> list[S]:
        """An array of the answer that is encoded, and counted, while it is built.

        Only append to it.
        """
        return self.encoded_array(of).as_list()

    def encoded_array(self, of: type[S]) -> EncodedArray[S]:
        """The same, as what it is."""
        return self._response.encoded_array(of, self._version, self)

    def spend(self, size: int) -> None:
        """`size` more bytes are held for the answer (A1, A2)."""
        answers = self._answers
        self.size += size
        answers.total += size
        if self.size > answers.size_max and size > 0:
            answers.stats.answers_refused += 1
            raise AnswerTooLarge(
                f"the answer would be larger than {answers.size_max} bytes (max.response.bytes); "
                "ask for less in one request")
        if answers.is_full and size > 0:
            answers.make_room()

    async def pause(self) -> None:
        """Let others have their turn, if this one has lasted long enough (A3)."""
        await self._answers.turns.pause()
        if self._is_closed():
            raise AskerGone

    def is_due(self) -> bool:
        """Is it time for `pause`?"""
        return self._answers.turns.is_over()

    def leaving(self, size: int) -> None:
        """The answer is complete, with `size` bytes, and is being sent."""
        self._answers.total += size - self.size
        self.size = size
        self._answers.leaving(self)

    def release(self) -> None:
        """Nothing is held for the answer any more."""
        self._answers.left(self)
        self._answers.total -= self.size
        self.size = 0

    def give_up(self) -> None:
        """Close the connection rather than wait until the answer has left."""
        self._close()
        self.release()

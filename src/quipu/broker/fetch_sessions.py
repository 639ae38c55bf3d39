"""Incremental fetch sessions (KIP-227): what a client fetches is remembered between requests.

A client that fetches a thousand partitions names them once; later requests carry only changes, and
answers only partitions with something to tell.

Invariants
    F1  a session is used by requests with epochs 1, 2, 3, ... in turn; any other is refused
    F2  at most `slots` sessions are kept; a new one takes the place of one that has been idle for
        IDLE_SECONDS, or is not given: the client then names everything each time

Not here: reading records (handlers/k01_fetch.py).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from quipu.model.errors import Code, RequestError
from quipu.runtime.clock import Clock

IDLE_SECONDS: Final = 120.0
NO_SESSION: Final = 0
EPOCH_FIRST: Final = 0  # make a session
EPOCH_FINAL: Final = -1  # fetch once, and end the session if there is one
_EPOCH_MAX: Final = (1 << 31) - 1

Key = tuple[str | bytes, int]  # topic name, or id as 16 bytes, and partition


@dataclass(slots=True, eq=False)
class FetchTarget:
    """One partition that a client fetches, and what it was last told of it."""

    topic: str | bytes
    partition: int
    offset: int
    size_max: int
    leader_epoch: int = -1
    last_fetched_epoch: int = -1
    told: tuple[int, int] | None = None  # high watermark and log start offset

    @property
    def key(self) -> Key:
        return self.topic, self.partition


@dataclass(slots=True, eq=False)
class FetchSession:
    """What one client fetches; partitions that had records go to the end, so all get their turn."""

    id: int
    epoch: int = EPOCH_FIRST
    last_used: float = 0.0
    targets: dict[Key, FetchTarget] = field(default_factory=dict)

    @property
    def incremental(self) -> bool:
        """May this answer leave out partitions with nothing new?"""
        return self.id != NO_SESSION and self.epoch != EPOCH_FIRST

    def update(self, changed: Iterable[FetchTarget], forgotten: Iterable[Key]) -> None:
        """Take over what a request says; new and changed partitions go to the end."""
        for key in forgotten:
            self.targets.pop(key, None)
        for target in changed:
            key = target.topic, target.partition
            old = self.targets.pop(key, None)
            if old is not None:
                target.told = old.told
            self.targets[key] = target

    def served(self, key: Key) -> None:
        """The partition had records: others come first next time."""
        self.targets[key] = self.targets.pop(key)

    def __iter__(self) -> Iterator[FetchTarget]:
        return iter(self.targets.values())


class FetchSessions:
    """All sessions of a node."""

    def __init__(self, clock: Clock, slots: int) -> None:
        self._clock = clock
        self._slots = slots
        self._next_id = 1
        self._sessions: dict[int, FetchSession] = {}  # the longest unused first

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self, session_id: int, epoch: int, changed: list[FetchTarget], forgotten: list[Key]
    ) -> FetchSession:
        """The session for a request, new or known; raises if it cannot be (F1)."""
        if epoch == EPOCH_FINAL:
            self._sessions.pop(session_id, None)
            return FetchSession(NO_SESSION, targets={each.key: each for each in changed})
        if epoch == EPOCH_FIRST:
            self._sessions.pop(session_id, None)
            session = self._new()
        else:
            session = self._known(session_id, epoch)
        session.update(changed, forgotten)
        return session

    def _new(self) -> FetchSession:
        now = self._clock.monotonic()
        if len(self._sessions) >= self._slots:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now - oldest.last_used < IDLE_SECONDS:
                return FetchSession(NO_SESSION)  # F2
            del self._sessions[oldest.id]
        session = FetchSession(self._next_id, last_used=now)
        self._next_id = self._next_id % _EPOCH_MAX + 1
        self._sessions[session.id] = session
        return session

    def _known(self, session_id: int, epoch: int) -> FetchSession:
        session = self._sessions.pop(session_id, None)
        if session is None:
            raise RequestError(f"fetch session {session_id} is not known; start a new one",
                               code=Code.FETCH_SESSION_ID_NOT_FOUND)
        self._sessions[session_id] = session  # now the one used last
        expected = session.epoch % _EPOCH_MAX + 1
        if epoch != expected:
            raise RequestError(f"fetch session {session_id}: epoch {epoch} instead of {expected}",
                               code=Code.INVALID_FETCH_SESSION_EPOCH)
        session.epoch = epoch
        session.last_used = self._clock.monotonic()
        return session

"""Incremental fetch sessions (KIP-227): what a client fetches is remembered between requests.

A client that fetches a thousand partitions names them once; later requests carry only changes, and
answers only partitions with something to tell.

Invariants
    F1  a session is used by requests with epochs 1, 2, 3, ... in turn; any other is refused
    F2  at most `slots` sessions are kept; a new one takes the place of one that has been idle for
        IDLE_SECONDS, or is not given: the client then names everything each time
    F3  a session belongs to the connection that made it, and ends with it: on any other its id is
        not known, so nobody uses, reads or ends another's; ids are random as well
    F4  what sessions and waiting fetches hold, and what is remembered of readers that were sent to
        another node, is at most `partitions_max` partitions; names that are longer than any
        topic's count for more
    F5  one address has at most half of either, so that others get theirs
    F6  a session names topics as its first request did, all by name or all by id: an answer has
        place for one of the two

Not here: reading records (handlers/k01_fetch.py).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from quipu.broker.stats import Stats
from quipu.model.errors import Code, RequestError
from quipu.model.ids import Epoch, NodeId, Offset
from quipu.runtime.clock import Clock
from quipu.runtime.rng import Rng

IDLE_SECONDS: Final = 120.0
SESSIONS_PER_CLIENT_MAX: Final = 4  # clients have one; the oldest makes room for a fifth
NO_SESSION: Final = 0
EPOCH_FIRST: Final = 0  # make a session
EPOCH_FINAL: Final = -1  # fetch once, and end the session if there is one
SLOTS: Final = "max.incremental.fetch.session.cache.slots"
PARTITIONS: Final = "max.incremental.fetch.session.cache.partitions"
_EPOCH_MAX: Final = (1 << 31) - 1
_NAME_SHIFT: Final = 8  # each 256 characters of a topic's name count as one partition more

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
    """What one client fetches; partitions that had records go to the end, so all get their turn.

    One that has ended is no session any more: its id is NO_SESSION.
    """

    id: int
    epoch: int = EPOCH_FIRST
    last_used: float = 0.0
    size: int = 0  # what its partitions count for (F4)
    held: int = 0  # the same of a wait without a session
    by_id: bool = False  # how its topics are named (F6)
    targets: dict[Key, FetchTarget] = field(default_factory=dict)

    @property
    def incremental(self) -> bool:
        """May this answer leave out partitions with nothing new?"""
        return self.id != NO_SESSION and self.epoch != EPOCH_FIRST

    def served(self, key: Key) -> None:
        """The partition had records: others come first next time."""
        self.targets[key] = self.targets.pop(key)

    def __iter__(self) -> Iterator[FetchTarget]:
        return iter(self.targets.values())


class Referral(NamedTuple):
    """What the readers of one partition on one connection were told about where to read."""

    node_id: NodeId  # that they were sent to; NO_NODE if to nobody
    at: float  # when, in monotonic seconds
    epoch: Epoch
    end: Offset  # where the log ended when they came back, or came; -1 while they are away


@dataclass(slots=True, eq=False)
class FetchClient:
    """One connection that fetches, and its sessions by id (F3)."""

    host: str
    sessions: dict[int, FetchSession] = field(default_factory=dict)
    referrals: dict[Key, Referral] = field(default_factory=dict)  # see `FetchSessions.refer`


@dataclass(slots=True)
class _Share:
    """What one address has (F5)."""

    sessions: int = 0
    partitions: int = 0


class FetchSessions:
    """All sessions of a node."""

    def __init__(
        self, clock: Clock, rng: Rng, stats: Stats, *, slots: int, partitions_max: int
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._stats = stats
        self._slots = slots
        self._partitions_max = partitions_max
        self._owners: dict[FetchSession, FetchClient] = {}  # the longest unused first
        self._shares: dict[str, _Share] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def open(
        self, client: FetchClient, session_id: int, epoch: int,
        changes: tuple[list[FetchTarget], list[Key]], *, by_id: bool = False,
    ) -> FetchSession:
        """The session for a request, new or known; raises if it cannot be (F1, F6)."""
        changed, forgotten = changes
        if epoch in (EPOCH_FINAL, EPOCH_FIRST):
            if session_id != NO_SESSION and (old := client.sessions.get(session_id)) is not None:
                self._end(old)
            if epoch == EPOCH_FINAL or not self._has_slot(client):
                return FetchSession(NO_SESSION, targets={
                    (each.topic, each.partition): each for each in changed})
            session = self._new(client, by_id=by_id)
        else:
            session = self._known(client, session_id, epoch, by_id=by_id)
        self.update(client, session, changed, forgotten)
        return session

    def update(
        self, client: FetchClient, session: FetchSession,
        changed: Iterable[FetchTarget], forgotten: Iterable[Key],
    ) -> None:
        """Take over what a request says; new and changed partitions go to the end.

        May be called for one piece of it after the other.  A new session for which there is no room
        ends, and its request is served without one; a known one raises.
        """
        session_id, before, targets = session.id, session.size, session.targets
        for key in forgotten:
            if targets.pop(key, None) is not None:
                session.size -= _size_of(key)
        for target in changed:
            key = target.topic, target.partition
            old = targets.pop(key, None)
            if old is not None:
                target.told = old.told
            else:
                session.size += _size_of(key)
            targets[key] = target
        if session_id == NO_SESSION:
            return
        self._hold(client.host, session.size - before)
        if session.size > before and not self._has_room(client.host):
            self._stats.refusals[PARTITIONS] += 1
            self._end(session)
            if session.epoch != EPOCH_FIRST:  # it starts anew, and is given none then
                raise RequestError(f"fetch session {session_id} has grown too large ({PARTITIONS})",
                                   code=Code.FETCH_SESSION_ID_NOT_FOUND)

    def hold(self, client: FetchClient, session: FetchSession) -> bool:
        """Let a fetch wait that has no session of its own; False if there is no room (F4)."""
        if session.id != NO_SESSION:
            return True  # it is counted
        session.held = len(session.targets)
        self._hold(client.host, session.held)
        if self._has_room(client.host):
            return True
        self._stats.refusals[PARTITIONS] += 1
        self.release(client, session)
        return False

    def release(self, client: FetchClient, session: FetchSession) -> None:
        """The wait that `hold` allowed has ended."""
        if session.held:
            self._hold(client.host, -session.held)
            session.held = 0

    def refer(self, client: FetchClient, key: Key, referral: Referral) -> None:
        """Remember what readers of a partition were told; without room for it, nothing is (F4).

        Such a reader is sent to the tail each time, and waits each time until all is committed.
        """
        if key not in client.referrals:
            self._hold(client.host, 1)
            if not self._has_room(client.host):
                self._hold(client.host, -1)
                self._stats.refusals[PARTITIONS] += 1
                return
        client.referrals[key] = referral

    def close(self, client: FetchClient) -> None:
        """The connection is gone, and its sessions with it (F3)."""
        for session in list(client.sessions.values()):
            self._end(session)
        if client.referrals:
            self._hold(client.host, -len(client.referrals))
            client.referrals.clear()

    # -- sessions

    def _has_slot(self, client: FetchClient) -> bool:
        """Whether the client may have one more session, after what can make room has (F2, F5)."""
        if len(client.sessions) >= SESSIONS_PER_CLIENT_MAX:
            self._end(next(iter(client.sessions.values())))
        if len(self._owners) >= self._slots:
            oldest = next(iter(self._owners), None)
            if oldest is not None and self._clock.monotonic() - oldest.last_used >= IDLE_SECONDS:
                self._end(oldest)
        share = self._shares.get(client.host)
        own_count = share.sessions if share is not None else 0
        if len(self._owners) < self._slots and own_count < max(1, self._slots // 2):
            return True
        self._stats.refusals[SLOTS] += 1
        return False

    def _new(self, client: FetchClient, *, by_id: bool) -> FetchSession:
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in client.sessions:
            session_id = int.from_bytes(self._rng.token(4)) & _EPOCH_MAX
        session = FetchSession(session_id, last_used=self._clock.monotonic(), by_id=by_id)
        client.sessions[session_id] = session
        self._owners[session] = client
        self._shares.setdefault(client.host, _Share()).sessions += 1
        self._stats.fetch_sessions = len(self._owners)
        return session

    def _known(
        self, client: FetchClient, session_id: int, epoch: int, *, by_id: bool
    ) -> FetchSession:
        session = client.sessions.get(session_id)
        if session is None:
            raise RequestError(f"fetch session {session_id} is not known; start a new one",
                               code=Code.FETCH_SESSION_ID_NOT_FOUND)
        if session.by_id != by_id:
            raise RequestError(
                f"fetch session {session_id} names topics by {'id' if session.by_id else 'name'}; "
                "start a new one", code=Code.FETCH_SESSION_TOPIC_ID_ERROR)
        self._owners[session] = self._owners.pop(session)  # now the one used last
        expected = session.epoch % _EPOCH_MAX + 1
        if epoch != expected:
            raise RequestError(f"fetch session {session_id}: epoch {epoch} instead of {expected}",
                               code=Code.INVALID_FETCH_SESSION_EPOCH)
        session.epoch = epoch
        session.last_used = self._clock.monotonic()
        return session

    def _end(self, session: FetchSession) -> None:
        client = self._owners.pop(session)
        del client.sessions[session.id]
        self._shares[client.host].sessions -= 1
        session.id = NO_SESSION
        self._hold(client.host, -session.size)
        self._stats.fetch_sessions = len(self._owners)

    # -- partitions

    def _hold(self, host: str, size: int) -> None:
        share = self._shares.setdefault(host, _Share())
        share.partitions += size
        self._stats.fetch_partitions += size
        assert share.partitions >= 0, host
        if not share.partitions and not share.sessions:
            del self._shares[host]

    def _has_room(self, host: str) -> bool:
        share = self._shares.get(host)
        return share is None or (
            self._stats.fetch_partitions <= self._partitions_max
            and share.partitions <= max(1, self._partitions_max // 2))


def _size_of(key: Key) -> int:
    return 1 + (len(key[0]) >> _NAME_SHIFT)

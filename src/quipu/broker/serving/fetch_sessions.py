"""Incremental fetch sessions (KIP-227): remember which partitions a client fetches.

A client that fetches a thousand partitions names them once; later requests carry only changes, and
responses only partitions with new records or new bounds.

Invariants
    broker.serving.F1  the requests of a session have the epochs 1, 2, 3, ...; a request with
                       another epoch is refused
    broker.serving.F2  at most `slots` sessions are kept; a new one replaces one that has been idle
                       for IDLE_SECONDS; if there is none, the client gets no session, and names all
                       partitions in each request
    broker.serving.F3  a session belongs to the connection that created it, and ends with it; on
                       other connections its id is unknown, so no client can use, read or end
                       another client's session; besides, ids are random
    broker.serving.F4  sessions, waiting fetches and referrals (clients that were sent to another
                       node) hold `partitions_max` partitions at most; a partition with a name that
                       is longer than any topic's counts for more
    broker.serving.F5  one address has at most half of the sessions and half of the partitions, so
                       that other addresses get theirs
    broker.serving.F6  a session names topics as its first request did, all by name or all by id: a
                       response has a field for only one of the two

Not here: reading records (handlers/k01_fetch.py).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from quipu.broker.observing.stats import Stats
from quipu.model.errors import Code, RequestError
from quipu.model.ids import Epoch, NodeId, Offset
from quipu.runtime.clock import Clock
from quipu.runtime.rng import Rng

IDLE_SECONDS: Final = 120.0
SESSIONS_PER_CLIENT_MAX: Final = 4  # clients use one; a fifth replaces the oldest
NO_SESSION: Final = 0
EPOCH_FIRST: Final = 0  # create a session
EPOCH_FINAL: Final = -1  # fetch once, and end the session if there is one
SLOTS: Final = "max.incremental.fetch.session.cache.slots"
PARTITIONS: Final = "max.incremental.fetch.session.cache.partitions"
_EPOCH_MAX: Final = (1 << 31) - 1
_NAME_SHIFT: Final = 8  # each 256 characters of a topic's name count as one partition more

Key = tuple[str | bytes, int]  # topic name, or id as 16 bytes, and partition


@dataclass(slots=True, eq=False)
class FetchTarget:
    """One partition that a client fetches, and the bounds in its last response."""

    topic: str | bytes
    partition: int
    offset: int
    size_max: int
    leader_epoch: int = -1
    last_fetched_epoch: int = -1
    reported: tuple[int, int] | None = None  # high watermark and log start in the last response

    @property
    def key(self) -> Key:
        return self.topic, self.partition


@dataclass(slots=True, eq=False)
class FetchSession:
    """The partitions that one client fetches; those that had records move to the end.

    So all partitions get their turn.  A session that has ended has the id NO_SESSION.
    """

    id: int
    epoch: int = EPOCH_FIRST
    last_used: float = 0.0
    size: int = 0  # how much its partitions count (broker.serving.F4)
    held: int = 0  # how much a waiting fetch without a session counts
    by_id: bool = False  # whether its topics are named by id (broker.serving.F6)
    targets: dict[Key, FetchTarget] = field(default_factory=dict)

    @property
    def incremental(self) -> bool:
        """Whether the response may leave out partitions without changes."""
        return self.id != NO_SESSION and self.epoch != EPOCH_FIRST

    def served(self, key: Key) -> None:
        """Move a partition that had records to the end: others come first next time."""
        self.targets[key] = self.targets.pop(key)

    def __iter__(self) -> Iterator[FetchTarget]:
        return iter(self.targets.values())


class Referral(NamedTuple):
    """The node to which the client on one connection was sent to read one partition."""

    node_id: NodeId  # NO_NODE if it was not sent to another node
    at: float  # when, in monotonic seconds
    epoch: Epoch
    end: Offset  # where the log ended when the client came here, or came back; -1 until then


@dataclass(slots=True, eq=False)
class FetchClient:
    """One connection that fetches, and its sessions by id (broker.serving.F3)."""

    host: str
    sessions: dict[int, FetchSession] = field(default_factory=dict)
    referrals: dict[Key, Referral] = field(default_factory=dict)  # see `FetchSessions.refer`


@dataclass(slots=True)
class _Share:
    """The sessions and partitions of one address (broker.serving.F5)."""

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
        self._owners: dict[FetchSession, FetchClient] = {}  # the least recently used first
        self._shares: dict[str, _Share] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def open(
        self, client: FetchClient, session_id: int, epoch: int,
        changes: tuple[list[FetchTarget], list[Key]], *, by_id: bool = False,
    ) -> FetchSession:
        """The session of a request, new or known; raises if the id or the epoch is wrong."""
        # broker.serving.F1, broker.serving.F6
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
        """Update the partitions of a session; new and changed ones go to the end.

        May be called several times for one request.  If there is no room, a new session ends and
        its request is served without one; for a known session this raises.
        """
        session_id, before, targets = session.id, session.size, session.targets
        for key in forgotten:
            if targets.pop(key, None) is not None:
                session.size -= _size_of(key)
        for target in changed:
            key = target.topic, target.partition
            old = targets.pop(key, None)
            if old is not None:
                target.reported = old.reported
            else:
                session.size += _size_of(key)
            targets[key] = target
        if session_id == NO_SESSION:
            return
        self._hold(client.host, session.size - before)
        if session.size > before and not self._has_room(client.host):
            self._stats.refusals[PARTITIONS] += 1
            self._end(session)
            if session.epoch != EPOCH_FIRST:  # the client then asks for a new one, and gets none
                raise RequestError(f"fetch session {session_id} has grown too large ({PARTITIONS})",
                                   code=Code.FETCH_SESSION_ID_NOT_FOUND)

    def hold(self, client: FetchClient, session: FetchSession) -> bool:
        """Count a waiting fetch without a session; False if there is no room for it."""
        # broker.serving.F4
        if session.id != NO_SESSION:
            return True  # the session is counted already
        session.held = len(session.targets)
        self._hold(client.host, session.held)
        if self._has_room(client.host):
            return True
        self._stats.refusals[PARTITIONS] += 1
        self.release(client, session)
        return False

    def release(self, client: FetchClient, session: FetchSession) -> None:
        """Note that the wait that `hold` counted has ended."""
        if session.held:
            self._hold(client.host, -session.held)
            session.held = 0

    def refer(self, client: FetchClient, key: Key, referral: Referral) -> bool:
        """Remember to which node a client was sent for a partition; False if there is no room.

        If there is none, the client is sent to the tail with every request; a node that is not the
        head lets every request wait until everything is committed that its log holds then.
        """
        if key not in client.referrals:
            self._hold(client.host, 1)
            if not self._has_room(client.host):
                self._hold(client.host, -1)
                self._stats.refusals[PARTITIONS] += 1
                return False
        client.referrals[key] = referral
        return True

    def close(self, client: FetchClient) -> None:
        """End the sessions of a connection that was closed (broker.serving.F3)."""
        for session in list(client.sessions.values()):
            self._end(session)
        if client.referrals:
            self._hold(client.host, -len(client.referrals))
            client.referrals.clear()

    # -- sessions

    def _has_slot(self, client: FetchClient) -> bool:
        """Whether the client may have one more session, after what can make room has."""
        # broker.serving.F2, broker.serving.F5
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
        self._owners[session] = self._owners.pop(session)  # the most recently used
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

"""What the parts of a replica share: its log, its place in the chain, and what is committed.

Invariants
    N1  `committed` never shrinks, and never passes the end of the log
    N2  `claimed` never shrinks within an epoch (what was acknowledged stays acknowledged), unless
        the log is cut, which in mid-epoch befalls only members that nobody counts on
    N3  a session number is used once, over all lives of a node
"""

from typing import Final, Protocol

from quipu.chain.messages import BEGIN, EPOCHS_MAX, Described, Mark, Why
from quipu.model.chains import MemberState, ReplicaSet
from quipu.model.ids import NO_EPOCH, Epoch, LogOffset, NodeId

LIFE_MAX: Final = (1 << 31) - 1
_SESSIONS_PER_LIFE: Final = 1 << 32


class LogView(Protocol):
    """A partition's log, as far as replication must see it.  Everything is as of now."""

    @property
    def log_start(self) -> LogOffset:
        """Of the first segment; equal to `log_end` only in a log without any batch."""
        ...

    @property
    def log_end(self) -> LogOffset: ...

    @property
    def end(self) -> Mark:
        """Where the next batch goes."""
        ...

    @property
    def durable(self) -> Mark:
        """What may be acknowledged: the flushed end if flush.messages is 1, else the end."""
        ...

    @property
    def last_epoch(self) -> Epoch:
        """Of the last batch (not: of the next one to come); NO_EPOCH if none has one.

        Cheap: asked for every message.
        """
        ...

    def epochs(self) -> list[tuple[Epoch, LogOffset]]:
        """Every epoch that has a batch in the log, and where it begins, oldest first."""
        ...


class Standing:
    """One replica's log and place; its parts hold on to it."""

    __slots__ = ("claimed", "committed", "epoch", "is_leading", "is_recovering", "log", "node_id",
                 "replica_set", "session", "state", "upstream", "window_size")

    def __init__(
        self, node_id: NodeId, log: LogView, *, committed: Mark, life: int, window_size: int,
        session: int = 0,
    ) -> None:
        assert 0 <= life <= LIFE_MAX, life
        assert window_size > 0, window_size
        self.node_id = node_id
        self.log = log
        self.window_size = window_size
        self.replica_set: ReplicaSet | None = None
        self.epoch = NO_EPOCH
        self.state: MemberState | None = None  # of this node, in `replica_set`
        self.is_recovering = False  # about to lead
        self.is_leading = False
        self.committed = min(committed, log.end)  # N1: a crash may have taken more than was said
        self.claimed = BEGIN  # what this node acknowledges: itself, and everybody after it
        self.upstream = BEGIN  # what everybody before it has; FAR at the head
        self.session = max(session, life * _SESSIONS_PER_LIFE)

    @property
    def end(self) -> Mark:
        return self.log.end

    @property
    def durable(self) -> Mark:
        return self.log.durable

    @property
    def is_current(self) -> bool:
        """Does the log hold this epoch's configuration, and so everything committed before it?"""
        return self.log.last_epoch == self.epoch

    @property
    def members(self) -> ReplicaSet:
        assert self.replica_set is not None
        return self.replica_set

    def next_session(self) -> int:
        self.session += 1  # N3
        return self.session

    def describe(self, why: Why, session: int = 0) -> Described:
        log = self.log
        log_end = log.log_end
        epochs = [entry for entry in log.epochs()[-EPOCHS_MAX:] if entry[1] < log_end]
        return Described(self.epoch, why, session, log.log_start, log_end,
                         self.committed.log, tuple(epochs))

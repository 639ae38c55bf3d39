"""What the parts of a replica share: its log, its place in the chain, its role, what is committed.

Invariants
    chain.N1  `committed` never shrinks, and never passes the end of the log
    chain.N2  `acknowledged` never shrinks within an epoch, unless the log is truncated, which in
              mid-epoch happens only to members that do not serve (chain.I5)
    chain.N3  a session number is used once, over all processes of a node
"""

from typing import Final, Protocol

from quipu.chain.messages import BEGIN, EPOCHS_MAX, DescribeReason, LogDescription, Mark
from quipu.chain.roles import ACTIVE, SERVING, Role, advance
from quipu.model.chains import MemberState, ReplicaSet
from quipu.model.ids import NO_EPOCH, Epoch, LogOffset, NodeId

BROKER_EPOCH_MAX: Final = (1 << 31) - 1
SERVING_MEMBER: Final = MemberState.SERVING  # the enum's own lookup costs more than a comparison
_SESSIONS_PER_BROKER_EPOCH: Final = 1 << 32


class LogView(Protocol):
    """A partition's log, as far as replication must see it.  Everything is as of now."""

    @property
    def log_start(self) -> LogOffset:
        """Of the first segment; equal to `log_end` only in a log without any batch."""
        ...

    @property
    def copy_start(self) -> LogOffset:
        """Where a copy for an empty log begins: `log_start`, or a later segment if a remote tier
        has every record before that, and this is committed.
        """
        ...

    @property
    def log_end(self) -> LogOffset: ...

    @property
    def sync_floor(self) -> LogOffset:
        """Where another log must end at least to be continued; 0 if this one is not compacted.

        Below it, compaction has removed tombstones of records that another log may still have.
        """
        ...

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

        Cheap: read for every message.
        """
        ...

    def epochs(self) -> list[tuple[Epoch, LogOffset]]:
        """Every epoch that has a batch in the log, and where it begins, oldest first."""
        ...


class ReplicaState:
    """One replica's log, place and role; its parts read it, `become` alone changes the role."""

    __slots__ = ("acknowledged", "committed", "epoch", "is_active", "is_leader", "is_recovering",
                 "is_serving", "log", "member_state", "node_id", "replica_set", "role", "session",
                 "upstream_durable", "window_size")

    def __init__(
        self, node_id: NodeId, log: LogView, *, committed: Mark, broker_epoch: int,
        window_size: int, session: int = 0,
    ) -> None:
        assert 0 <= broker_epoch <= BROKER_EPOCH_MAX, broker_epoch
        assert window_size > 0, window_size
        assert session >= 0, session
        self.node_id = node_id
        self.log = log
        self.window_size = window_size
        self.replica_set: ReplicaSet | None = None
        self.epoch = NO_EPOCH
        self.member_state: MemberState | None = None  # of this node, in `replica_set`
        self.role = Role.NONE
        self.is_active = False  # the next four follow from the role
        self.is_serving = False
        self.is_leader = False
        self.is_recovering = False
        self.committed = min(committed, log.end)  # chain.N1: a crash may have taken batches
        self.acknowledged = BEGIN  # what this node and every member after it that counts has
        self.upstream_durable = BEGIN  # what every member before it has; FAR at the head
        self.session = max(session, broker_epoch * _SESSIONS_PER_BROKER_EPOCH)
        self.invariants(log.log_end)

    def become(self, role: Role) -> None:
        """Take `role`, which must be allowed after the present one (chain.T1)."""
        self.role = advance(self.role, role)
        self.is_active = role in ACTIVE
        self.is_serving = role in SERVING
        self.is_leader = role is Role.LEADING
        self.is_recovering = role is Role.RECOVERING
        assert self.is_active or not self.is_serving, role
        assert self.is_serving or not self.is_leader, role

    @property
    def first_role(self) -> Role:
        """The role in which a member of the present replica set begins its epoch."""
        match self.member_state:
            case None | MemberState.OFFLINE:
                return Role.NONE
            case MemberState.SYNCING:
                return Role.SYNCING
        return Role.RECOVERING if self.members.head == self.node_id else Role.JOINING

    @property
    def end(self) -> Mark:
        return self.log.end

    @property
    def durable(self) -> Mark:
        return self.log.durable

    @property
    def is_current(self) -> bool:
        """Whether the log holds this epoch's configuration, and so all committed before it."""
        return self.log.last_epoch == self.epoch

    @property
    def members(self) -> ReplicaSet:
        assert self.replica_set is not None
        return self.replica_set

    def next_session(self) -> int:
        """Return the number of a new session (chain.N3)."""
        assert self.is_active, self.role
        self.session += 1
        assert self.session % _SESSIONS_PER_BROKER_EPOCH, self.session  # they are never used up
        return self.session

    def describe(self, reason: DescribeReason, session: int = 0) -> LogDescription:
        """Return where this log begins and ends, and its last epochs."""
        log = self.log
        log_end = log.log_end
        assert log.log_start <= log_end, (log.log_start, log_end)
        assert self.committed.log <= log_end, (self.committed, log_end)  # chain.N1
        epochs = [entry for entry in log.epochs()[-EPOCHS_MAX:] if entry[1] < log_end]
        return LogDescription(self.epoch, reason, session, log.log_start, log_end,
                              self.committed.log, tuple(epochs))

    def invariants(self, log_end: LogOffset) -> None:
        """Assert what holds between two events, while the log ends at `log_end`."""
        replica_set = self.replica_set
        assert self.committed[0] <= log_end, (self.committed, log_end)  # chain.N1
        assert self.acknowledged[0] <= log_end, (self.acknowledged, log_end)  # chain.C2
        if replica_set is None:
            assert not self.is_active, self.role
            return
        assert replica_set.epoch == self.epoch, (replica_set.epoch, self.epoch)  # chain.C4
        if self.is_serving:
            assert self.log.last_epoch == self.epoch, (self.log.last_epoch, self.epoch)  # chain.C1
            assert self.member_state is SERVING_MEMBER, self.member_state
        if self.is_leader or self.is_recovering:
            assert replica_set.members[0].node_id == self.node_id, replica_set

"""One node's copy of the replicated log, and how far each step has come with it.

    snapshot_index  entries up to here are gone: the snapshot covers them
    last_applied    committed entries up to here were handed to the state machine
    commit_index    entries up to here are committed
    written         entries up to here were given to the disk; durable: and are flushed
    last_index      of the last entry, as last_term; all above snapshot_index are in memory

Invariants
    raft.G1  entries are dense: the one at position p of the list has index snapshot_index + 1 + p,
             so the last one has index snapshot_index + their number
    raft.G2  terms do not fall from one entry to the next
    raft.G3  a committed entry is never truncated; if a leader's entries differ from it, a voter has
             lost entries that it had acknowledged
    raft.G4  `durable` counts an entry only if what was last written at its index is durable: a
             truncation lowers `written`, `durable` and the indexes of the writes under way
    raft.G5  the configuration is that of the newest entry that has one, or of the snapshot
    raft.G6  snapshot_index <= last_applied <= commit_index <= last_index, and
             durable <= written <= last_index
"""

from collections import deque
from collections.abc import Iterable, Sequence

from quipu.model.batch_types import CONFIGURATION
from quipu.model.errors import ErrorKind, QuipuError
from quipu.model.ids import NodeId, RaftIndex, Term
from quipu.raft.membership import Configuration
from quipu.raft.messages import RaftEntry
from quipu.raft.settings import APPEND_SIZE_MAX, ENTRIES_MAX


class SafetyLost(QuipuError):
    """Two nodes have different committed entries: a voter has lost what it had acknowledged."""

    kind = ErrorKind.CORRUPT


class RaftLog:
    """One node's log."""

    def __init__(
        self, snapshot_index: int, snapshot_term: int, configuration: Configuration,
        entries: Iterable[RaftEntry] = (),
    ) -> None:
        assert snapshot_index >= 0, snapshot_index
        assert snapshot_term >= 0, snapshot_term
        self.snapshot_index = self.last_index = RaftIndex(snapshot_index)
        self.snapshot_term = self.last_term = Term(snapshot_term)
        self.commit_index = self.last_applied = self.snapshot_index
        self._entries: list[RaftEntry] = []
        self._configurations = [(self.snapshot_index, configuration)]  # raft.G5, with their indexes
        # The writes under way: the number of a `ready`, and the last index that it wrote.
        self._writes: deque[tuple[int, RaftIndex]] = deque()
        self.append(entries)
        self.written = self.durable = self.last_index  # it comes from the disk
        self.invariants()

    def invariants(self) -> None:
        """Assert what holds between two steps."""
        snapshot_index, last_index = self.snapshot_index, self.last_index
        last_applied, commit_index = self.last_applied, self.commit_index
        written, entries, writes = self.written, self._entries, self._writes
        assert snapshot_index + len(entries) == last_index, (snapshot_index, last_index)  # raft.G1
        assert self.last_term >= self.snapshot_term, (self.last_term, self.snapshot_term)  # raft.G2
        assert snapshot_index <= last_applied, (snapshot_index, last_applied)  # raft.G6
        assert last_applied <= commit_index, (last_applied, commit_index)  # raft.G6
        assert commit_index <= last_index, (commit_index, last_index)  # raft.G6
        assert self.durable <= written, (self.durable, written)  # raft.G6
        assert written <= last_index, (written, last_index)  # raft.G6
        assert not writes or writes[-1][1] <= written, (writes[-1], written)  # raft.G4
        configurations = self._configurations
        assert configurations[0][0] == snapshot_index, configurations[0]  # raft.G5
        assert configurations[-1][0] <= last_index, configurations[-1]  # raft.G5

    # --- what is in it ----------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether it never had an entry."""
        return self.last_index == 0

    def find_term(self, index: int) -> Term | None:
        """Return the term of the entry at `index`; None if there is none, or it is compacted."""
        if index == self.snapshot_index:
            return self.snapshot_term
        if self.snapshot_index < index <= self.last_index:
            return self._entries[index - self.snapshot_index - 1].term  # raft.G1
        return None

    def entry(self, index: int) -> RaftEntry:
        """Return the entry at `index`, which is here."""
        assert self.snapshot_index < index <= self.last_index, (index, self.snapshot_index)
        return self._entries[index - self.snapshot_index - 1]

    def slice(self, start: int, end: int) -> list[RaftEntry]:
        """Return entries of indexes [start, end), all of which are here."""
        assert self.snapshot_index < start <= end <= self.last_index + 1, (start, end)
        first = self.snapshot_index + 1
        return self._entries[start - first : end - first]

    def entries_for_message(self, start: int, end: int) -> tuple[RaftEntry, ...]:
        """Return entries in [start, end), as many as one message carries; at least one."""
        assert start < end, (start, end)
        found = self.slice(start, min(end, start + ENTRIES_MAX))
        assert found, (start, end)
        size = 0
        for count, entry in enumerate(found):
            size += entry.size
            if size > APPEND_SIZE_MAX and count > 0:
                return tuple(found[:count])
        return tuple(found)

    def is_up_to_date(self, last_index: int, last_term: int) -> bool:
        """Whether a log with this last entry has every entry that this log may have acknowledged.

        That is Raft's rule for votes: a higher last term, or the same one and no lower last index.
        """
        return (last_term, last_index) >= (self.last_term, self.last_index)

    def find_conflict_hint(self, index: int, term: int) -> tuple[RaftIndex, Term]:
        """Return the last index at or below `index` whose term is not above `term`, and its term.

        Two logs can only match there or below, so whole terms are skipped in one step.
        """
        assert index >= 0, index
        at = min(index, self.last_index)
        while at > self.snapshot_index:
            found = self.entry(at).term
            if found <= term:
                return RaftIndex(at), found
            at -= 1
        assert at <= self.snapshot_index, (at, self.snapshot_index)
        return RaftIndex(at), self.snapshot_term

    # --- who votes --------------------------------------------------------------------------

    @property
    def configuration(self) -> Configuration:
        return self._configurations[-1][1]

    @property
    def configuration_index(self) -> RaftIndex:
        return self._configurations[-1][0]

    def configuration_at(self, index: int) -> Configuration:
        """Return the configuration that was in force when `index` was the last entry."""
        assert index >= self.snapshot_index, index
        return next(found for at, found in reversed(self._configurations) if at <= index)

    def may_vote(self, node_id: NodeId) -> bool:
        """Whether `node_id` votes in the last committed configuration, or in one after it."""
        for at, found in reversed(self._configurations):
            if node_id in found.voters:
                return True
            if at <= self.commit_index:
                break
        return False

    # --- appending and truncating -----------------------------------------------------------

    def append(self, entries: Iterable[RaftEntry]) -> None:
        """Append entries that follow the last one."""
        own = self._entries
        last_index, last_term = self.last_index, self.last_term
        for entry in entries:
            assert entry[0] == last_index + 1, (entry[0], last_index)  # raft.G1
            assert entry[1] >= last_term, (entry[1], last_term)  # raft.G2
            last_index, last_term = entry[0], entry[1]
            if entry[2] == CONFIGURATION:
                found = Configuration.decode(entry[3][0])
                self._configurations.append((last_index, found))  # raft.G5, raft.C1
            own.append(entry)
            self.last_index, self.last_term = last_index, last_term

    def merge(self, entries: Sequence[RaftEntry]) -> None:
        """Append a leader's entries; the entry before the first of them is in this log.

        Entries that this log has already stay; at the first that differs the log is truncated.
        """
        if not entries:
            return
        last = entries[-1]
        assert entries[0].index <= self.last_index + 1, (entries[0].index, self.last_index)
        for position, entry in enumerate(entries):
            if entry.index > self.last_index:
                self.append(entries[position:])
                break
            if self.find_term(entry.index) != entry.term and entry.index > self.snapshot_index:
                self.truncate(entry.index)
                self.append(entries[position:])
                break
        assert self.last_index >= last.index, (self.last_index, last.index)
        assert self.find_term(last.index) in (last.term, None), (last.index, last.term)  # raft.F1

    def truncate(self, index: int) -> None:
        """Remove the entry at `index` and all after it."""
        if index <= self.commit_index:
            raise SafetyLost(
                f"a leader replaces entry {index}, but entries up to {self.commit_index} are "
                "committed; has a voter lost its disk or been given an old copy of it? Stop this "
                "node, keep its directory, and let it join again with an empty one")  # raft.G3
        assert index <= self.last_index, (index, self.last_index)
        del self._entries[index - self.snapshot_index - 1 :]
        self.last_index = end = RaftIndex(index - 1)
        self.last_term = self._entries[-1].term if self._entries else self.snapshot_term
        while self._configurations[-1][0] > end:
            self._configurations.pop()  # raft.G5, raft.C3
        self.written = min(self.written, end)
        self.durable = min(self.durable, end)
        self._writes = deque((number, min(at, end)) for number, at in self._writes)  # raft.G4
        assert self.commit_index <= end, (self.commit_index, end)  # raft.G3
        self.invariants()

    # --- steps -----------------------------------------------------------------------------

    def take_unwritten(self, number: int) -> list[RaftEntry]:
        """Return entries to write now; `persisted(number)` says that they are durable."""
        assert not self._writes or self._writes[-1][0] < number, number  # raft.G4: in order
        written = self.written
        found = self._entries[written - self.snapshot_index :]
        assert not found or found[0][0] == written + 1, (found[0][0], written)  # raft.G1
        assert written + len(found) == self.last_index, (written, self.last_index)  # raft.G6
        self.written = self.last_index
        if self.durable < self.written and (
                not self._writes or self._writes[-1][1] < self.written):
            self._writes.append((number, self.written))
        return found

    def persisted(self, number: int) -> None:
        """Note that the entries that were taken for writing up to `number` are durable."""
        before = self.durable
        while self._writes and self._writes[0][0] <= number:
            self.durable = max(self.durable, self._writes.popleft()[1])  # raft.G4
        assert self.durable >= before, (self.durable, before)  # raft.G4
        assert self.durable <= self.written, (self.durable, self.written)  # raft.G6

    def commit(self, index: int) -> bool:
        """Advance the commit index to `index`, at most to the end; return whether it moved."""
        assert index >= 0, index
        index = min(index, self.last_index)
        if index <= self.commit_index:
            return False
        self.commit_index = RaftIndex(index)
        assert index > self.snapshot_index, (index, self.snapshot_index)  # raft.G6
        return True

    def take_committed(self, count_max: int) -> list[RaftEntry]:
        """Return committed entries that were not handed out yet, in order."""
        assert count_max > 0, count_max
        before = self.last_applied
        if before == self.commit_index:
            return []
        end = min(self.commit_index, before + count_max)
        assert end > before, (end, before)
        found = self.slice(before + 1, end + 1)
        assert found[0].index == before + 1, (found[0].index, before)  # raft.G1
        assert found[-1].index == end, (found[-1].index, end)  # raft.G1
        self.last_applied = RaftIndex(end)
        return found

    def compact(self, index: int) -> None:
        """Drop entries up to `index`, which a durable snapshot covers."""
        assert index <= self.last_applied, (index, self.last_applied)
        if index <= self.snapshot_index:
            return
        term = self.find_term(index)
        assert term is not None
        configuration = self.configuration_at(index)
        later = [pair for pair in self._configurations if pair[0] > index]
        del self._entries[: index - self.snapshot_index]
        self.snapshot_index, self.snapshot_term = RaftIndex(index), term
        self._configurations = [(self.snapshot_index, configuration), *later]
        assert self.find_term(index) == term, (index, term)
        self.invariants()

    def reset_to_snapshot(self, index: int, term: int, configuration: Configuration) -> None:
        """Replace the whole log by a snapshot that goes beyond what is committed here."""
        assert index > self.commit_index, (index, self.commit_index)
        self._entries = []
        self.snapshot_index, self.snapshot_term = RaftIndex(index), Term(term)
        self.last_index, self.last_term = self.snapshot_index, self.snapshot_term
        self._configurations = [(self.snapshot_index, configuration)]
        self.commit_index = self.last_applied = self.written = self.snapshot_index
        self.durable = RaftIndex(0)  # raft.G4: until the snapshot is flushed
        self._writes = deque((number, RaftIndex(0)) for number, _ in self._writes)
        self.invariants()

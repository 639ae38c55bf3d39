"""The entries of a log that others have too, and how far each step has come with them.

    image_index   <= applied <= committed <= last_index
    entries up to it are gone    handed out          in memory; written <= last, durable <= written

Invariants
    G1  entries are dense: the one at position p of the list has index image_index + 1 + p
    G2  terms do not fall from one entry to the next
    G3  nothing committed is ever cut; whoever asks for it shows that the log's safety is lost
    G4  `durable` counts an entry only if what was last written at its index is durable: a cut
        takes back what is written above it, and what is under way to the disk (marks)
    G5  the configuration is that of the newest entry that has one, or of the image (C1, C3)
"""

from collections import deque
from collections.abc import Iterable, Sequence

from quipu.model.batch_types import CONFIGURATION
from quipu.model.errors import Kind, QuipuError
from quipu.model.ids import NodeId, RaftIndex, Term
from quipu.raft.membership import Configuration
from quipu.raft.messages import Entry
from quipu.raft.settings import APPEND_SIZE_MAX, ENTRIES_MAX


class SafetyLost(QuipuError):
    """Two nodes hold different decisions: one of them has lost what it had promised to keep."""

    kind = Kind.CORRUPT


class RaftLog:
    """One node's log."""

    def __init__(
        self, image_index: int, image_term: int, configuration: Configuration,
        entries: Iterable[Entry] = (),
    ) -> None:
        self.image_index = RaftIndex(image_index)
        self.image_term = Term(image_term)
        self.committed = self.applied = self.image_index
        self._entries: list[Entry] = []
        self._configurations = [(self.image_index, configuration)]  # G5: with their indexes
        self._marks: deque[tuple[int, RaftIndex]] = deque()  # what is under way to the disk
        self.append(entries)
        self.written = self.durable = self.last_index  # it comes from the disk

    # --- what is in it ----------------------------------------------------------------------

    @property
    def last_index(self) -> RaftIndex:
        return RaftIndex(self.image_index + len(self._entries))

    @property
    def last_term(self) -> Term:
        return self._entries[-1].term if self._entries else self.image_term

    @property
    def is_empty(self) -> bool:
        """Has nothing ever been in it?"""
        return self.last_index == 0

    def find_term(self, index: int) -> Term | None:
        """The term of the entry at `index`; None if it is not here, or no longer."""
        if index == self.image_index:
            return self.image_term
        if self.image_index < index <= self.last_index:
            return self._entries[index - self.image_index - 1].term
        return None

    def entry(self, index: int) -> Entry:
        assert self.image_index < index <= self.last_index, (index, self.image_index)
        return self._entries[index - self.image_index - 1]

    def slice(self, start: int, end: int) -> list[Entry]:
        """Entries of indexes [start, end), all of which are here."""
        assert self.image_index < start <= end <= self.last_index + 1, (start, end)
        first = self.image_index + 1
        return self._entries[start - first : end - first]

    def run(self, start: int, end: int) -> tuple[Entry, ...]:
        """Entries from `start` on, up to `end`, as many as one message carries; at least one."""
        found = self.slice(start, min(end, start + ENTRIES_MAX))
        size = 0
        for count, entry in enumerate(found):
            size += entry.size
            if size > APPEND_SIZE_MAX and count > 0:
                return tuple(found[:count])
        return tuple(found)

    def is_up_to_date(self, last_index: int, last_term: int) -> bool:
        """Does a log with this end hold all that this one may have helped to decide?"""
        return (last_term, last_index) >= (self.last_term, self.last_index)

    def conflict_hint(self, index: int, term: int) -> tuple[RaftIndex, Term]:
        """The last place at or below `index` whose term is not above `term`: the ends of two
        logs can only agree there or below; whole terms are passed over in one step.
        """
        at = min(index, self.last_index)
        while at > self.image_index:
            found = self.entry(at).term
            if found <= term:
                return RaftIndex(at), found
            at -= 1
        return RaftIndex(at), self.image_term

    # --- who votes --------------------------------------------------------------------------

    @property
    def configuration(self) -> Configuration:
        return self._configurations[-1][1]

    @property
    def configuration_index(self) -> RaftIndex:
        return self._configurations[-1][0]

    def configuration_at(self, index: int) -> Configuration:
        """Who voted when `index` was the last entry."""
        assert index >= self.image_index, index
        return next(found for at, found in reversed(self._configurations) if at <= index)

    def may_vote(self, node_id: NodeId) -> bool:
        """Is it a voter, in the last decided configuration or in one that may still be decided?"""
        for at, found in reversed(self._configurations):
            if node_id in found.voters:
                return True
            if at <= self.committed:
                break
        return False

    # --- growing, and being cut -------------------------------------------------------------

    def append(self, entries: Iterable[Entry]) -> None:
        """Add entries that follow the last one."""
        own = self._entries
        last_index, last_term = self.last_index, self.last_term
        for entry in entries:
            assert entry[0] == last_index + 1, (entry[0], last_index)  # G1
            assert entry[1] >= last_term, (entry[1], last_term)  # G2
            last_index, last_term = entry[0], entry[1]
            own.append(entry)
            if entry[2] == CONFIGURATION:
                found = Configuration.decode(entry[3][0])
                self._configurations.append((last_index, found))

    def merge(self, entries: Sequence[Entry]) -> None:
        """Take in a leader's entries, of which the one before the first is here.

        Those that are here already stay; at the first that differs the log is cut.
        """
        for position, entry in enumerate(entries):
            if entry.index > self.last_index:
                self.append(entries[position:])
                return
            if self.find_term(entry.index) != entry.term and entry.index > self.image_index:
                self.cut(entry.index)
                self.append(entries[position:])
                return

    def cut(self, index: int) -> None:
        """Remove the entry at `index` and all after it."""
        if index <= self.committed:
            raise SafetyLost(
                f"a leader wants entry {index} replaced, and up to {self.committed} all are "
                "decided; has a voter lost its disk or been given an old copy of it? Stop this "
                "node, keep its directory, and let it join again with an empty one")  # G3
        del self._entries[index - self.image_index - 1 :]
        end = RaftIndex(index - 1)
        while self._configurations[-1][0] > end:
            self._configurations.pop()  # G5
        self.written = min(self.written, end)
        self.durable = min(self.durable, end)
        self._marks = deque((number, min(at, end)) for number, at in self._marks)  # G4

    # --- the steps --------------------------------------------------------------------------

    def take_unwritten(self, number: int) -> list[Entry]:
        """Entries to write now; `number` says later that they, and all before, are durable."""
        found = self.slice(self.written + 1, self.last_index + 1)
        self.written = self.last_index
        if self.durable < self.written and (not self._marks or self._marks[-1][1] < self.written):
            self._marks.append((number, self.written))
        return found

    def persisted(self, number: int) -> None:
        """What was taken with `number` is durable (G4)."""
        while self._marks and self._marks[0][0] <= number:
            self.durable = max(self.durable, self._marks.popleft()[1])

    def commit(self, index: int) -> bool:
        """Everything up to `index`, as far as it is here, is decided; did that add anything?"""
        index = min(index, self.last_index)
        if index <= self.committed:
            return False
        self.committed = RaftIndex(index)
        return True

    def take_committed(self, count_max: int) -> list[Entry]:
        """Decided entries that were not handed out yet, in order."""
        end = min(self.committed, self.applied + count_max)
        found = self.slice(self.applied + 1, end + 1)
        self.applied = RaftIndex(end)
        return found

    def compact(self, index: int) -> None:
        """Forget entries up to `index`, which an image holds."""
        assert index <= self.applied, (index, self.applied)
        if index <= self.image_index:
            return
        term = self.find_term(index)
        assert term is not None
        configuration = self.configuration_at(index)
        later = [pair for pair in self._configurations if pair[0] > index]
        del self._entries[: index - self.image_index]
        self.image_index, self.image_term = RaftIndex(index), term
        self._configurations = [(self.image_index, configuration), *later]

    def restart(self, index: int, term: int, configuration: Configuration) -> None:
        """Begin anew after an image that holds more than all of this."""
        assert index > self.committed, (index, self.committed)
        self._entries = []
        self.image_index, self.image_term = RaftIndex(index), Term(term)
        self._configurations = [(self.image_index, configuration)]
        self.committed = self.applied = self.written = self.image_index
        self.durable = RaftIndex(0)  # until the image is: see the mark that it is written with
        self._marks = deque((number, RaftIndex(0)) for number, _ in self._marks)

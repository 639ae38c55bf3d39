"""Snapshots in chunks: out of order, twice, of another leader, too large."""

import pytest

from quipu.model.errors import MalformedBytes
from quipu.model.ids import RaftIndex, Term
from quipu.raft.membership import Configuration
from quipu.raft.messages import InstallSnapshot, Snapshot
from quipu.raft.settings import CHUNK_SIZE_MAX, SNAPSHOT_SIZE_MAX
from quipu.raft.snapshot import SnapshotReceiver, SnapshotSender, join_items

VOTERS = Configuration.of([1, 2, 3])
SNAPSHOT = Snapshot(RaftIndex(9), Term(2), VOTERS, (b"a" * CHUNK_SIZE_MAX, b"b"))
DATA = join_items(SNAPSHOT.items)


def chunk(position: int, *, term: int = 3, size: int = len(DATA)) -> InstallSnapshot:
    return InstallSnapshot(
        Term(term), SNAPSHOT.index, SNAPSHOT.term, VOTERS, RaftIndex(9), size, position,
        DATA[position : position + CHUNK_SIZE_MAX])


def test_chunks_are_taken_in_order_whatever_comes() -> None:
    """T7: raft.I1; the response to any other says where to continue."""
    sender, receiver = SnapshotSender(SNAPSHOT, DATA), SnapshotReceiver()
    assert receiver.receive(chunk(CHUNK_SIZE_MAX)) == (0, None)
    for _ in range(2):
        position, whole = receiver.receive(sender.message(Term(3), RaftIndex(9)))
        assert (position, whole) == (CHUNK_SIZE_MAX, None)
    sender.resume_from(position)
    assert receiver.receive(sender.message(Term(3), RaftIndex(9))) == (len(DATA), SNAPSHOT)


def test_a_snapshot_of_another_leader_starts_from_the_beginning() -> None:
    """T7: raft.I1; what two leaders sent is never mixed."""
    receiver = SnapshotReceiver()
    receiver.receive(chunk(0))
    assert receiver.receive(chunk(CHUNK_SIZE_MAX, term=4)) == (0, None)


def test_memory_is_not_reserved_for_what_is_announced() -> None:
    """K8: raft.I2; a size above the limit is rejected, any other takes no memory in advance."""
    receiver = SnapshotReceiver()
    receiver.receive(chunk(0, size=SNAPSHOT_SIZE_MAX))
    assert receiver._data.__sizeof__() < 3 * CHUNK_SIZE_MAX
    with pytest.raises(MalformedBytes, match="more than"):
        receiver.receive(chunk(0, size=SNAPSHOT_SIZE_MAX + 1))
